"""Pieces that models of both apps are built from."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pgtrigger
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Func


class Uuid7(Func):
    """A version 7 UUID by the database's clock: ids sort by age. Neither Python 3.11 nor PostgreSQL 15 has it."""

    function = "uuid7"
    arity = 0
    output_field = models.UUIDField()


class ObservedNow(Func):
    """The observed clock at this moment, in seconds; see liveness.models.Clock."""

    function = "observed_now"
    arity = 0
    output_field = models.FloatField()


class ClockTimestamp(Func):
    """The database's clock at this moment, not at the start of the transaction as now() is."""

    function = "clock_timestamp"
    arity = 0
    output_field = models.DateTimeField()


def check_one_of(field: str, words: Iterable[str], name: str) -> models.CheckConstraint:
    """The column holds one of the enum's words."""
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": sorted(words)}), name=name)


def build_transition_guards(
    pairs: list[tuple[str, str]], initial: Iterable[str], *, unless: str = "", or_begins: str = ""
) -> list[pgtrigger.Trigger]:
    """Triggers that refuse every transition and every first state that the table does not have.

    `unless` is a condition in SQL under which a transition is legal all the same, `or_begins` one under which a first
    state is.

    UPDATE OF state with a WHEN clause, so that a heartbeat never pays for it; and after it, as a trigger before it
    locks each row once more, whatever its clause says.
    """
    legal = ", ".join(f"('{from_}', '{to}')" for from_, to in pairs)
    first = ", ".join(f"'{state}'" for state in sorted(initial))
    return [
        RefusingTrigger(
            name="legal_transition",
            operation=pgtrigger.UpdateOf("state"),
            condition=pgtrigger.Condition(
                f"OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN ({legal})"
                + (f" AND NOT ({unless})" if unless else "")
            ),
            when=pgtrigger.After,
            message="illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation",
        ),
        RefusingTrigger(
            name="legal_beginning",
            operation=pgtrigger.Insert,
            condition=pgtrigger.Condition(
                f"NEW.state NOT IN ({first})" + (f" AND NOT ({or_begins})" if or_begins else "")
            ),
            message="illegal first state %', NEW.state USING ERRCODE = 'check_violation",
        ),
    ]


class RefusingTrigger(pgtrigger.Trigger):
    """A row trigger that refuses what its condition describes."""

    when = pgtrigger.Before

    def __init__(self, *, message: str, **options: Any) -> None:
        super().__init__(func=f"RAISE EXCEPTION '{message}';", **options)


class ConcurrentBuild:
    """What builds or removes an index on a table that is in use, without anybody waiting for it. Alone in migrations
    that are not atomic.

    It waits for whoever uses the table, however long, and holds no lock meanwhile that anybody but another migration
    would wait for. One that was interrupted leaves an index behind that is no good; the next try removes it.
    """

    model_name: str
    allow_migrate_model: Any

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            self.build(app_label, schema_editor, from_state, to_state)

    def build(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        raise NotImplementedError

    @contextmanager
    def without_timeouts(self, schema_editor: Any, name: str) -> Iterator[None]:
        schema_editor.execute("SET lock_timeout = 0; SET statement_timeout = 0")
        try:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(name)}")
            yield
        finally:
            schema_editor.execute("RESET lock_timeout; RESET statement_timeout")


class BuildIndex(ConcurrentBuild, AddIndexConcurrently):
    """An index; see `ConcurrentBuild`."""

    def build(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._ensure_not_in_transaction(schema_editor)
        with self.without_timeouts(schema_editor, self.index.name):
            AddIndexConcurrently.database_forwards(self, app_label, schema_editor, from_state, to_state)


class RemoveIndex(ConcurrentBuild, RemoveIndexConcurrently):
    """What another index has replaced goes, without anybody waiting for it either."""

    def build(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._ensure_not_in_transaction(schema_editor)
        with self.without_timeouts(schema_editor, self.name):
            pass  # it is removed as one that is no good is


class BuildUnique(ConcurrentBuild, migrations.AddConstraint):
    """A unique constraint under a condition, which PostgreSQL keeps as an index; see `ConcurrentBuild`."""

    def build(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        built = str(self.constraint.create_sql(model, schema_editor))
        with self.without_timeouts(schema_editor, self.constraint.name):
            schema_editor.execute(built.replace("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX CONCURRENTLY", 1))


class RemoveUnique(ConcurrentBuild, migrations.RemoveConstraint):
    """One that `BuildUnique` made goes; see `RemoveIndex`."""

    name: str

    def build(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        with self.without_timeouts(schema_editor, self.name):
            pass
