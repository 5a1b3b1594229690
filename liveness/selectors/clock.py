"""Selectors of the database's clock: its time, the age of the last liveness check, and the lag of observed time."""

from datetime import datetime

from django.db.models import FloatField, Func

from controlplane.core.model_fields import ClockTimestamp
from liveness.conf import conf
from liveness.models import Clock
from liveness.sql import sql

# A subquery, so that the clock is read once for all rows.
SILENCE = "extract(epoch from (SELECT clock_timestamp()) - %(expressions)s)::float8"


def clock_ages() -> tuple[float | None, float]:
    """Return the seconds since the last successful liveness check (None: never), and since observed time advanced."""
    check_age = sql.build_expression("check_age", FloatField())
    standstill = Func("moved_at", template=SILENCE, output_field=FloatField())
    ages: tuple[float | None, float] = Clock.objects.values_list(check_age, standstill).get()
    return ages


def is_check_late(age: float | None) -> bool:
    """Return True if the last liveness check was so long ago that lost servers are not noticed.

    `age` is in seconds; None means that no check ever succeeded. A negative age means that the database's clock was set
    back since the last check.
    """
    return age is None or abs(age) > latest_check_age()


def latest_check_age() -> float:
    """Return the age in seconds of a liveness check above which it was too long ago."""
    return 3.0 * conf().interval


def database_time() -> datetime:
    """Return the time of the database's clock, which all ages are measured by."""
    now: datetime = Clock.objects.values_list(ClockTimestamp(), flat=True).get()
    return now
