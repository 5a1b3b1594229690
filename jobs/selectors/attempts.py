"""SQL expressions for attempts: the server that holds them, and the run time of their code."""

from django.db.models import Case, F, FloatField, Func, JSONField, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.functions import Coalesce, JSONObject

from controlplane.core.model_fields import ClockTimestamp
from jobs import states
from jobs.models import Attempt, LogLine
from liveness.selectors.servers import servers_with_silence


def summary_of_server() -> Subquery:
    """Return an attempt's server: `id`, `name`, and state (SILENT if it is alive but sends no heartbeats)."""
    servers = servers_with_silence().filter(pk=OuterRef("server_id"))
    state = Case(When(silent=True, then=Value("SILENT")), default=F("state"), output_field=TextField())
    return Subquery(servers.values(summary=JSONObject(id="pk", name="name", state=state)), output_field=JSONField())


def holder_of_job() -> Subquery:
    """Return the server that holds a job, as in `summary_of_server()`."""
    live = Attempt.objects.filter(pk=OuterRef("attempt_id")).annotate(holder=summary_of_server())
    return Subquery(live.values("holder"), output_field=JSONField())


def last_attempt_of_job() -> Subquery:
    """Return the last attempt of a job: `state` and `server`.

    `seconds` is the run time of its code until now. `quiet` is the time since its last output.
    """
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").annotate(holder=summary_of_server())
    summary = JSONObject(state="state", server="holder", seconds=seconds_of_attempt(), quiet=seconds_without_output())
    return Subquery(last.values(summary=summary)[:1], output_field=JSONField())


RAN = "extract(epoch from %(expressions)s)::float8"


def seconds_of_attempt() -> Func:
    """Return the run time of an attempt's code until now, in seconds."""
    return Func(
        Coalesce("finished_at", ClockTimestamp()), F("started_at"), template=RAN, arg_joiner=" - ",
        output_field=FloatField(),
    )  # fmt: skip


def seconds_without_output() -> Case:
    """Return the seconds since the last line that a running attempt wrote, or since its start if it wrote none."""
    lines = LogLine.objects.filter(attempt=OuterRef("pk")).order_by("-id").values("at")[:1]
    quiet = Func(
        ClockTimestamp(), Coalesce(Subquery(lines), F("started_at")), template=RAN, arg_joiner=" - ",
        output_field=FloatField(),
    )  # fmt: skip
    return Case(When(finished_at__isnull=True, then=quiet), output_field=FloatField())


def seconds_of_job() -> Case:
    """Return the run time of the last attempt of a job in seconds (null for a waiting job)."""
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").values(seconds=seconds_of_attempt())[:1]
    has_run = Q(state__in=states.LIVE | states.TERMINAL)
    return Case(When(has_run, then=Subquery(last, output_field=FloatField())), output_field=FloatField())
