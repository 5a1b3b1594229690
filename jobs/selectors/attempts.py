"""What is read of the attempts of jobs along with these: the server that has them, and for how long their code runs."""

from django.db.models import Case, F, FloatField, Func, JSONField, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.functions import Coalesce, JSONObject

from controlplane.core.model_fields import ClockTimestamp
from jobs import states
from jobs.models import Attempt
from liveness.selectors.servers import servers_with_silence


def summary_of_server() -> Subquery:
    """Of an attempt its server: its `id`, its `name`, and its state, SILENT if it is alive without heartbeats."""
    servers = servers_with_silence().filter(pk=OuterRef("server_id"))
    state = Case(When(silent=True, then=Value("SILENT")), default=F("state"), output_field=TextField())
    return Subquery(servers.values(summary=JSONObject(id="pk", name="name", state=state)), output_field=JSONField())


def holder_of_job() -> Subquery:
    """The server that has a job, as `summary_of_server()` has it."""
    live = Attempt.objects.filter(pk=OuterRef("attempt_id")).annotate(holder=summary_of_server())
    return Subquery(live.values("holder"), output_field=JSONField())


def last_attempt_of_job() -> Subquery:
    """The last attempt of a job: its `state`, its `server`, and for how many `seconds` its code ran, or runs."""
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").annotate(holder=summary_of_server())
    summary = last.values(summary=JSONObject(state="state", server="holder", seconds=seconds_of_attempt()))[:1]
    return Subquery(summary, output_field=JSONField())


RAN = "extract(epoch from %(expressions)s)::float8"


def seconds_of_attempt() -> Func:
    """For how long the code of an attempt ran, or runs."""
    return Func(
        Coalesce("finished_at", ClockTimestamp()), F("started_at"), template=RAN, arg_joiner=" - ",
        output_field=FloatField(),
    )  # fmt: skip


def seconds_of_job() -> Case:
    """The same of the last attempt of a job; none of one that waits."""
    last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").values(seconds=seconds_of_attempt())[:1]
    has_run = Q(state__in=states.LIVE | states.TERMINAL)
    return Case(When(has_run, then=Subquery(last, output_field=FloatField())), output_field=FloatField())
