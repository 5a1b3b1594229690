"""Reads holds, the jobs that they park, and the holds of jobs."""

from collections.abc import Collection, Iterable
from typing import Any

from django.db.models import DurationField, ExpressionWrapper, F, Max, Q, QuerySet

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Hold
from jobs.sql import sql
from jobs.states import HoldOf


def holds_in_force(namespaces: Collection[str] | None = None) -> QuerySet[Hold]:
    """Return the holds that concern work of these namespaces (None: all) and have not ended."""
    rows = Hold.objects.filter(Q(ends_at=None) | Q(ends_at__gt=ClockTimestamp()), ended_at=None)
    if namespaces is None:
        return rows
    return rows.filter(Q(namespace=None) | Q(namespace__in=sorted(namespaces)))


def oldest_hold_age() -> float:
    """Return the seconds since the oldest hold in force began, or 0."""
    age_of_one = ExpressionWrapper(ClockTimestamp() - F("created_at"), DurationField())
    age = holds_in_force().aggregate(age=Max(age_of_one))["age"]
    return age.total_seconds() if age else 0.0


def find_hold(kind: HoldOf, value: str) -> Hold | None:
    """Return the oldest hold of exactly this, or None."""
    return holds_in_force().filter(kind=kind, value=value).order_by("pk").first()


def holds_with_parked(holds: Iterable[Hold]) -> list[Any]:
    """Return holds with `parked`, the number of waiting jobs that each covers."""
    rows: list[Any] = list(holds)
    counted = sql.count_parked_jobs.fetch_rows(holds=[row.pk for row in rows]) if rows else []
    parked = {row.id: row.parked for row in counted}
    for row in rows:
        row.parked = parked.get(row.pk, 0)
    return rows
