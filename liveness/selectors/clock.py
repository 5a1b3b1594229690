"""The database's clock: the time of all ages, and when liveness checks and observed time moved last."""

from datetime import datetime

from django.db.models import FloatField, Func

from controlplane.core.model_fields import ClockTimestamp
from liveness.conf import conf
from liveness.models import Clock
from liveness.sql import sql

# In a subquery, so that a clock is read once for all rows.
SILENCE = "extract(epoch from (SELECT clock_timestamp()) - %(expressions)s)::float8"


def clock_ages() -> tuple[float | None, float]:
    """Seconds since a liveness check went through last (None before the first), and since observed time last moved."""
    check_age = sql.build_expression("check_age", FloatField())
    standstill = Func("moved_at", template=SILENCE, output_field=FloatField())
    return Clock.objects.values_list(check_age, standstill).get()


def is_check_late(age: float | None) -> bool:
    """Whether no liveness check has gone through for so many seconds (None: ever) that nobody notices a lost server.

    One that lies in the future: the database's clock was set back, and no check has been since.
    """
    return age is None or abs(age) > 3 * conf().interval


def database_time() -> datetime:
    """The clock by which all ages are measured."""
    return Clock.objects.values_list(ClockTimestamp(), flat=True).get()
