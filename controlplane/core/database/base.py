"""PostgreSQL as Django has it, which also knows whether anything may have been changed since somebody asked.

Who loses the connection in the middle of COMMIT cannot know whether it was done, and what was committed before that
stays. A statement to which the database itself said no has changed nothing, nor has one in a transaction that did not
come to its COMMIT.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.db import Error, InternalError, OperationalError
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from psycopg.adapt import AdaptersMap

SUSPENDED = "25P03"
"""PostgreSQL ended a transaction that said nothing for too long, and the connection with it."""


class UtcLoader(BaseTzLoader):
    """Moments, read in a tenth of the time that Django takes: nearly each row has several."""

    timezone = UTC

    def load(self, data: Any) -> datetime:
        with suppress(ValueError):
            moment = datetime.fromisoformat(str(data, "ascii"))
            return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
        return super().load(data)


@cache
def with_utc_loader(adapters: AdaptersMap) -> AdaptersMap:
    """How Django has values read, but for moments."""
    adapters = AdaptersMap(adapters)
    adapters.register_loader("timestamptz", UtcLoader)
    return adapters


class DatabaseWrapper(base.DatabaseWrapper):
    may_have_changed = False
    """Since it was set to False."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._has_uncommitted_changes = False  # in the transaction that is open
        self.execute_wrappers.append(self._run_and_translate)

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        if self.timezone is UTC:
            params["context"] = with_utc_loader(params["context"])
        return params

    def _run_and_translate(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        try:
            return self._run_and_record(execute, sql, params, many, context)
        except InternalError as error:
            if getattr(error.__cause__, "sqlstate", None) != SUSPENDED:
                raise
            # The driver takes this for a fault of the database; it is a connection that is lost, as any other.
            raise OperationalError(*error.args) from error.__cause__

    def _run_and_record(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        # One statement that reads: after a semicolon comes another, which may write.
        if isinstance(sql, str) and sql.lstrip()[:6].upper() == "SELECT" and ";" not in sql:
            return execute(sql, params, many, context)
        if not self.autocommit:
            self._has_uncommitted_changes = True
            return execute(sql, params, many, context)
        with self._assume_changed():
            return execute(sql, params, many, context)

    @contextmanager
    def _assume_changed(self) -> Iterator[None]:
        before, self.may_have_changed = self.may_have_changed, True
        try:
            yield
        except Error as error:
            if getattr(error.__cause__, "sqlstate", None):
                self.may_have_changed = before
            raise

    def _commit(self) -> Any:
        if not self._has_uncommitted_changes:
            return super()._commit()  # type: ignore[misc]
        self._has_uncommitted_changes = False
        with self._assume_changed():
            return super()._commit()  # type: ignore[misc]

    def _rollback(self) -> Any:
        self._has_uncommitted_changes = False
        return super()._rollback()  # type: ignore[misc]

    def connect(self) -> None:
        self._has_uncommitted_changes = False
        super().connect()
