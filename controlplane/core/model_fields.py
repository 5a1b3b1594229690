"""Fields, constraints and triggers for the models of both apps."""

from collections.abc import Iterable
from typing import Any

import pgtrigger
from django.db import models
from django.db.models import Func
from django.db.models.expressions import Combinable


class VolatileFunc(Func):
    """Function with another value for each row. Queries do not group by it, which would make each row its own group."""

    arity = 0

    def get_group_by_cols(self) -> list[Any]:
        return []


class Uuid7(VolatileFunc):
    """Version 7 UUID from the database's clock, so that ids sort by age.

    Python 3.11 and PostgreSQL 15 cannot make it.
    """

    function = "uuid7"
    output_field = models.UUIDField()


class ObservedNow(VolatileFunc):
    """Observed time now, in seconds; see liveness.models.Clock."""

    function = "observed_now"
    output_field = models.FloatField()


class ClockTimestamp(VolatileFunc):
    """Time of the database's clock now. In contrast, now() is the start of the transaction."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class IsTrue(Func):
    """Condition that PostgreSQL does not take apart.

    Only a query with exactly the same condition can use an index with it. Nor can such a query use an index for a part
    of the condition. So PostgreSQL cannot choose a wrong index when its statistics know no waiting jobs.
    """

    template = "(%(expressions)s) IS TRUE"
    arity = 1
    output_field = models.BooleanField()


class IsOneOf(Func):
    """Condition that a column holds one of some words, which are separated by commas.

    PostgreSQL reads the stored text of a check again in each statement that writes. An array is shorter than a list of
    texts.
    """

    template = "%(expressions)s = ANY ('{%(words)s}'::text[])"
    arity = 1
    output_field = models.BooleanField()


class IsSetWhileOneOf(IsOneOf):
    """Condition that a column has a value exactly while a second column holds one of some words."""

    template = f"({IsOneOf.template})"
    arg_joiner = " IS NOT NULL) = ("
    arity = 2


def is_one_of(field: str | Combinable, words: Iterable[str]) -> IsOneOf:
    """Return the condition that the column holds one of the enum's words, which have only letters and underscores."""
    return IsOneOf(field, words=join_words(words))


def is_set_while_one_of(field: str, state: str, words: Iterable[str]) -> IsSetWhileOneOf:
    """Return the condition that `field` has a value exactly while the column `state` holds one of the enum's words."""
    return IsSetWhileOneOf(field, state, words=join_words(words))


def join_words(words: Iterable[str]) -> str:
    words = sorted(words)
    if not all(word.replace("_", "").isalpha() for word in words):
        raise ValueError(f"A word may have only letters and underscores: {', '.join(words)}")
    return ",".join(words)


def check_one_of(field: str, words: Iterable[str], name: str) -> models.CheckConstraint:
    """Return a constraint: the column holds one of the enum's words."""
    return models.CheckConstraint(condition=models.Q(is_one_of(field, words)), name=name)


def build_transition_guards(
    pairs: list[tuple[str, str]], initial: Iterable[str], *, unless: str = "", or_begins: str = ""
) -> list[pgtrigger.Trigger]:
    """Return triggers that refuse every transition and every first state that is not listed.

    `unless` is an SQL condition under which any transition is legal. `or_begins` is an SQL condition under which any
    first state is legal.

    The trigger for transitions is UPDATE OF state with a WHEN clause, so heartbeats do not run it. It is an AFTER
    trigger, because a BEFORE trigger would lock each row once more even if its WHEN clause is false.

    PostgreSQL reads the stored WHEN clause again in each statement. An array is shorter than a list of comparisons.
    """
    legal = ",".join(f"{from_} {to}" for from_, to in pairs)
    first = ",".join(sorted(initial))
    return [
        RefusingTrigger(
            name="legal_transition",
            operation=pgtrigger.UpdateOf("state"),
            condition=pgtrigger.Condition(
                f"OLD.state IS DISTINCT FROM NEW.state AND OLD.state || ' ' || NEW.state <> ALL ('{{{legal}}}'::text[])"
                + (f" AND NOT ({unless})" if unless else "")
            ),
            when=pgtrigger.After,
            message="illegal transition from % to %', OLD.state, NEW.state USING ERRCODE = 'check_violation",
        ),
        RefusingTrigger(
            name="legal_beginning",
            operation=pgtrigger.Insert,
            condition=pgtrigger.Condition(
                f"NEW.state <> ALL ('{{{first}}}'::text[])" + (f" AND NOT ({or_begins})" if or_begins else "")
            ),
            message="illegal first state %', NEW.state USING ERRCODE = 'check_violation",
        ),
    ]


class RefusingTrigger(pgtrigger.Trigger):
    """Row trigger that raises an error when its condition holds."""

    when = pgtrigger.Before

    def __init__(self, *, message: str, **options: Any) -> None:
        super().__init__(func=f"RAISE EXCEPTION '{message}';", **options)
