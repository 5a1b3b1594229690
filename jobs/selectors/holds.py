"""Reads holds, the jobs that they park, and the holds of jobs."""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet

from controlplane.core.model_fields import ClockTimestamp
from jobs.choices import HoldOf
from jobs.models import Hold
from jobs.sql import sql
from jobs.sql.rows.kill import JobsToKill


def holds_in_force(namespaces: Collection[str] | None = None) -> QuerySet[Hold]:
    """Return the holds that concern work of these namespaces (None: all) and have not ended."""
    rows = Hold.objects.filter(Q(ends_at=None) | Q(ends_at__gt=ClockTimestamp()), ended_at=None)
    if namespaces is None:
        return rows
    return rows.filter(Q(namespace=None) | Q(namespace__in=sorted(namespaces)))


def hold_ages() -> list[tuple[HoldOf, float]]:
    """Return what each hold in force holds, and the seconds since it began."""
    age = ExpressionWrapper(ClockTimestamp() - F("created_at"), DurationField())
    rows = holds_in_force().annotate(age=age).values_list("kind", "age")
    return [(HoldOf(kind), age.total_seconds()) for kind, age in rows]


def find_hold(kind: HoldOf, value: str) -> Hold | None:
    """Return the oldest hold of exactly this, or None."""
    return holds_in_force().filter(kind=kind, value=value).order_by("pk").first()


def count_jobs_to_kill(
    kind: str, value: str, namespace: str, namespaces: Collection[str] | None, until: UUID | None
) -> JobsToKill:
    """Return how many jobs a hold and a cancellation would end, up to the job `until` (None: all)."""
    return sql.count_jobs_to_kill.fetch_only_row(**parameters_of_kill(kind, value, namespace, namespaces, until))


def list_jobs_to_kill(
    kind: str, value: str, namespace: str, namespaces: Collection[str] | None, until: UUID | None, most: int
) -> list[UUID]:
    """Return the jobs of `count_jobs_to_kill`, oldest first."""
    parameters = parameters_of_kill(kind, value, namespace, namespaces, until)
    return [row.id for row in sql.list_jobs_to_kill.fetch_rows(**parameters, most=most)]


def parameters_of_kill(
    kind: str, value: str, namespace: str, namespaces: Collection[str] | None, until: UUID | None
) -> dict[str, Any]:
    return {
        "kind": kind, "value": value, "namespace": namespace or None,
        "namespaces": None if namespaces is None else sorted(namespaces), "until": until,
    }  # fmt: skip


def holds_with_parked(holds: Iterable[Hold]) -> list[Any]:
    """Return holds with `parked`, the number of waiting jobs that each covers, and the `name` of what is held."""
    rows: list[Any] = list(holds)
    counted = sql.count_parked_jobs.fetch_rows(holds=[row.pk for row in rows]) if rows else []
    found = {row.id: row for row in counted}
    for row in rows:
        known = found.get(row.pk)
        row.parked, row.name = (known.parked, known.name or row.value) if known else (0, row.value)
    return rows
