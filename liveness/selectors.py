"""Reads for the API and the pages."""

from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, F, FloatField, Func, Q, QuerySet
from django.db.models.functions import Coalesce

from controlplane.schema import ClockTimestamp
from liveness.conf import conf
from liveness.models import Clock, Server, ServerEvent

SILENCE = "extract(epoch from clock_timestamp() - %(expressions)s)::float8"


def servers() -> QuerySet[Server]:
    """Servers with `silence` in seconds and whether they are `fresh`, by the database's clock at this read."""
    heard = Coalesce("last_heartbeat_at", "created_at")
    limit = F("heartbeat_interval") * conf().staleness_multiplier
    return Server.objects.annotate(
        silence=Func(heard, template=SILENCE, output_field=FloatField()),
        fresh=ExpressionWrapper(Q(last_heartbeat_at__isnull=False, silence__lt=limit), output_field=BooleanField()),
    )


def events_of(server: UUID) -> QuerySet[ServerEvent]:
    """The transitions of a server, oldest first."""
    return ServerEvent.objects.filter(server_id=server)


def seconds_since_check() -> float | None:
    """Age of the last liveness check that went through; None before the first."""
    age = Func("finished_at", template=SILENCE, output_field=FloatField())
    return Clock.objects.annotate(age=age).values_list("age", flat=True).get()


def database_time() -> object:
    """The clock that all ages are told by."""
    return Clock.objects.values_list(ClockTimestamp(), flat=True).get()
