"""Requests and responses of clients' calls about jobs."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.bounds import LONGEST_WAIT
from controlplane.core.paging import PageFilter
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    NoteField,
    SecondsField,
    StrictSerializer,
    TextField,
    TimeField,
    WholeField,
    YesNoField,
)
from jobs import scan_window
from jobs.api.serializers.actions import ActionField, PriorityField
from jobs.api.serializers.deadlines import DEADLINE_FIELDS, WithDeadline
from jobs.api.serializers.limits import LimitsField
from jobs.api.serializers.secrets import MaskedObjectField, MaskedPayloadField, refuse_wrong_payload
from jobs.api.serializers.waits import WaitAnswer
from jobs.models import Attempt, LateReport, WorkerJob, named_limits
from jobs.selectors.contents import LARGE
from jobs.selectors.job_search import jobs_with_text
from jobs.selectors.jobs import flagged_job_ids, jobs_with_flags
from jobs.selectors.timeline import job_timeline
from jobs.states import (
    Flag,
    Isolation,
    JobKind,
    JobState,
    OnConflict,
    OnWorkerLost,
    RetryBackoff,
    UniqueWhile,
    Unmatched,
)
from liveness.api.serializers.registration import RequiredTags

TRACEPARENT = r"\A00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
"""Pattern of version 00 of W3C's Trace Context."""


@extend_schema_field(
    {"oneOf": [{"type": "string", "enum": list(UniqueWhile)}, {"type": "number", "exclusiveMinimum": 0}]}
)
class WhileField(serializers.Field):
    """How long a unique key finds a job: while it is in a state, or for a number of seconds after its submission."""

    def to_internal_value(self, data: object) -> Any:
        if isinstance(data, str) and data in list(UniqueWhile):
            return UniqueWhile(data)
        if isinstance(data, int | float) and not isinstance(data, bool) and 0 < data <= LONGEST_WAIT:
            return float(data)
        raise serializers.ValidationError(
            f'Use "waiting", "active", or a number of seconds above 0 and up to {LONGEST_WAIT}.'
        )

    def to_representation(self, value: Any) -> Any:
        return value


class UniqueRequest(StrictSerializer):
    key = TextField(max_length=200, help_text="Key of the work, such as `invoice:17`. It is yours alone.")
    on_conflict = ChoiceField(
        OnConflict.choices(),
        default=OnConflict.RETURN,
        help_text="If a job has the key: `return` it, `refuse` this one (409), `replace` payload and priority of the"
        " job that waits, or `extend`: also set its `available_at` to that of this one.",
    )

    def get_fields(self) -> dict[str, Any]:
        # "while" is a keyword of Python.
        lasts = WhileField(
            default=UniqueWhile.ACTIVE,
            help_text="`waiting`: a job that waits has the key. `active`: also one that runs. A number: each job, for"
            " so many seconds after its submission.",
        )
        return {**super().get_fields(), "while": lasts}


class JobRequest(WithDeadline):
    name = TextField(required=False, max_length=200, help_text="Name for people. Default: its action.")
    action = ActionField()
    payload = AnyField(required=False, help_text="Payload of the code.")
    tags = RequiredTags(required=False, help_text="Tags that a worker must have, in addition to those of the action.")
    priority = PriorityField(required=False, help_text="Higher ones are claimed first.")
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    available_at = TimeField(required=False, help_text="Time before which it is not claimed.")
    good_until = TimeField(required=False, allow_null=True, help_text="Time at which it is EXPIRED if it still waits.")
    on_worker_lost = ChoiceField(OnWorkerLost.choices(), required=False)
    unmatched = ChoiceField(
        Unmatched.choices(),
        required=False,
        help_text="Handling of the job if no alive worker has its tags. With `fail` it is refused at once (409,"
        " `no_runner`) if no worker accepts such an action.",
    )
    max_retries = WholeField(
        required=False, min_value=0, max_value=1000, help_text="Number of retries after an error of its code."
    )
    retry_delay_seconds = SecondsField(required=False)
    retry_backoff = ChoiceField(RetryBackoff.choices(), required=False)
    retry_on = serializers.ListField(
        child=FreeTextField(), max_length=100, required=False, allow_null=True,
        help_text="Error codes after which it is retried; null: all errors of its code.",
    )  # fmt: skip
    isolation = ChoiceField(
        Isolation.choices(), required=False, allow_null=True,
        help_text="`process`: each attempt has a process of its own. Null: the worker decides.",
    )  # fmt: skip
    limits = LimitsField(
        required=False,
        help_text="Keys whose limits count for it, such as `customer:42`, or an object of keys and the slots that it"
        " needs.",
    )
    worker_slots = WholeField(required=False, min_value=1, max_value=1000, help_text="Slots of its worker. Default: 1.")
    require_worker = YesNoField(required=False, help_text="True: refuse it (503) if no worker may run it now.")
    key = TextField(required=False, help_text="Idempotency key: the same key again returns the same job.")
    unique = UniqueRequest(
        required=False, help_text="Submit it only if no other job of yours has this key. It is independent of `key`."
    )
    traceparent = serializers.RegexField(
        TRACEPARENT, required=False, allow_null=True,
        help_text="Trace in which it is submitted. Default: the header `traceparent`.",
    )  # fmt: skip

    def validate(self, job: dict[str, Any]) -> dict[str, Any]:
        until, since = job.get("good_until"), job.get("available_at")
        if until is not None and since is not None and until <= since:
            raise serializers.ValidationError({"good_until": ["good_until must be after available_at."]})
        refuse_wrong_payload(job["action"], job.get("payload"))
        return super().validate(job)


class ServerName(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()


class TimelineEntry(serializers.Serializer):
    attempt = serializers.IntegerField(allow_null=True, help_text="Null: an entry of the job itself.")
    state = serializers.CharField()
    at = TimeField()
    server = ServerName(allow_null=True)
    reason = serializers.CharField()


class AttemptAnswer(ModelAnswer):
    error = AnyField()
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="`error` if it is too large for this response. It has only its code then.",
    )
    server = serializers.SerializerMethodField()

    class Meta:
        model = Attempt
        fields = (
            "id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "heartbeat_at", "progress",
            "message", "error", "left_out",
        )  # fmt: skip

    @extend_schema_field(ServerName)
    def get_server(self, attempt: Attempt) -> dict[str, Any]:
        return {"id": attempt.server_id, "name": attempt.server.name}


class LateReportAnswer(ModelAnswer):
    attempt = serializers.SerializerMethodField()

    class Meta:
        model = LateReport
        fields = ("attempt", "event", "at", "reason", "more")

    def get_attempt(self, report: LateReport) -> str:
        return str(report.attempt_id)


class JobAnswer(ModelAnswer):
    action = MaskedObjectField()
    payload = MaskedPayloadField(source="*")
    payload_from = serializers.DictField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Values in the payload of a step that come from its execution: JSON pointer and SQL/JSON path.",
    )
    output = AnyField()
    error = AnyField()
    attempts = AttemptAnswer(many=True)
    timeline = serializers.SerializerMethodField()
    late_reports = LateReportAnswer(many=True)
    flags = serializers.ListField(
        child=ChoiceField(Flag.choices()),
        help_text="Reasons why a person should look at it: "
        + "; ".join(f"{flag.value} ({flag.meaning})" for flag in Flag),
    )
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="Fields among action, payload, output, error and checkpoint that a list leaves out, because they have"
        f" more than {LARGE} bytes of JSON. They are null then; an action has only its type, and an error only its"
        " code. `GET /jobs/{id}` has the whole values.",
    )
    execution = serializers.UUIDField(source="execution_id", allow_null=True, help_text="Null: it is not a step.")
    resubmission_of = serializers.UUIDField(
        source="resubmission_of_id", allow_null=True, help_text="Ended job that it repeats."
    )
    resubmitted_as = serializers.UUIDField(allow_null=True, help_text="Latest job that repeats it.")
    child = serializers.UUIDField(source="child_execution", allow_null=True, help_text="Execution that it runs.")
    waiting_for = WaitAnswer(allow_null=True, help_text="Event that a step waits for now, without a worker.")
    limits = serializers.SerializerMethodField(help_text="Slots that it needs, by key.")
    parked_by = serializers.SerializerMethodField(
        help_text='Why no worker gets it although it is PENDING: `{"limit": key}`, `{"hold": id}` or'
        ' `{"max_parallel": step}`. Null if it can be claimed.'
    )

    class Meta:
        model = WorkerJob
        fields = (
            "id", "name", "namespace", "kind", "state", "flags", "action", "payload", "payload_from", "tags",
            "required_tags", "priority", "timeout_seconds", "on_worker_lost", "unmatched", "max_retries",
            "retry_delay_seconds", "retry_backoff", "retry_on", "isolation", *DEADLINE_FIELDS,
            "limits", "worker_slots", "parked_by",
            "resubmissions", "retries", "resubmission_of", "resubmitted_as", "cancel_requested_at", "execution", "step",
            "child", "waiting_for", "key", "traceparent",
            "output", "error", "checkpoint", "checkpoint_at", "created_at", "available_at", "good_until", "finished_at",
            "attempts", "timeline", "late_reports", "left_out",
        )  # fmt: skip

    @extend_schema_field(TimelineEntry(many=True))
    def get_timeline(self, job: WorkerJob) -> list[dict[str, Any]]:
        return job_timeline(job)

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "integer"}})
    def get_limits(self, job: WorkerJob) -> dict[str, int]:
        return named_limits(job.limits) or {}

    @extend_schema_field({"type": ["object", "null"], "additionalProperties": {"type": "string"}})
    def get_parked_by(self, job: WorkerJob) -> dict[str, str] | None:
        return job.parked_by if job.state == JobState.PENDING else None


class SubmittedAnswer(JobAnswer):
    duplicate = serializers.BooleanField(help_text="True: its unique key found this job, which was there before.")

    class Meta(JobAnswer.Meta):
        fields = (*JobAnswer.Meta.fields, "duplicate")  # type: ignore[assignment]


class JobAnswers(serializers.Serializer):
    items = SubmittedAnswer(many=True, help_text="In the order of the request.")


class JobPage(serializers.Serializer):
    items = JobAnswer(many=True)
    next = serializers.CharField(
        allow_null=True,
        help_text="Cursor of the next page; null: this is the last page. Filters without an index (`tag`, or `kind`"
        " TASK or CELERY) search a limited number of jobs per page. Such a page may have fewer items than `limit`, or"
        " none, although there is a next page.",
    )


class JobFilter(PageFilter):
    """Filter of jobs, and page."""

    state = ChoiceField(JobState.choices(), required=False)
    kind = ChoiceField(JobKind.choices(), required=False)
    key = TextField(required=False)
    tag = TextField(
        required=False, max_length=100, help_text="Tag that a worker must have, including those of the action."
    )

    flag = ChoiceField(Flag.choices(), required=False, help_text="Jobs with this flag.")
    q = TextField(
        required=False, max_length=200,
        help_text="Text in the name, the action or the error, the key, or the beginning or last digits of the id.",
    )  # fmt: skip

    def match_rows(self, rows: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
        filters = self.validated_data
        if "flag" in filters:
            rows = rows.filter(pk__in=flagged_job_ids(filters["flag"], scan_window.SCAN_LIMIT))
        rows = rows.filter(**{field: filters[field] for field in ("state", "kind") if field in filters})
        if "key" in filters:
            rows = rows.filter(scan_window.has_key_condition(filters["key"]))
        if "q" in filters:
            rows = jobs_with_text(rows, filters["q"])
        return rows.filter(required_tags__contains=[filters["tag"]]) if "tag" in filters else rows

    def page(self, rows: QuerySet[WorkerJob], floor: UUID | None = None) -> dict[str, Any]:
        """Return a page. Filters without an index search only SCAN_LIMIT rows."""
        filters = self.validated_data
        if "flag" in filters:
            rows = rows.filter(pk__in=flagged_job_ids(filters["flag"], scan_window.SCAN_LIMIT))
        jobs, state = scan_window.filter_by_kind(rows, filters.get("kind")), filters.get("state")
        if "key" in filters:
            jobs = jobs.filter(scan_window.has_key_condition(filters["key"]))
        if filters.keys() & {"tag", "q"} or filters.get("kind") in (JobKind.TASK, JobKind.CELERY):
            jobs, floor = scan_window.next_scan_window(jobs, filters.get("cursor"), state)
        elif state:
            jobs = jobs.filter(state=state)
        if "kind" in filters:
            jobs = jobs.filter(kind=filters["kind"])
        if "tag" in filters:
            jobs = jobs.filter(required_tags__contains=[filters["tag"]])
        if "q" in filters:
            jobs = jobs_with_text(jobs, filters["q"])
        page = super().page(jobs, floor)
        return {**page, "items": jobs_with_flags(page["items"])}


class NoteRequest(StrictSerializer):
    """Request of an action by hand."""

    note = NoteField()


class ResubmitRequest(NoteRequest):
    keep_checkpoint = YesNoField(
        default=True, help_text="False: drop the checkpoint, so that the next attempt starts from the beginning."
    )
    force = YesNoField(default=False, help_text="True: resubmit it even if it was resubmitted before.")


class FailRequest(NoteRequest):
    reason = NoteField(required=False, allow_blank=True, help_text="Message of the job's error. Default: the note.")


class Candidate(serializers.Serializer):
    server = ServerName()
    load = serializers.FloatField(help_text="Slots that its attempts use, divided by max_concurrent.")
    hint = ChoiceField(
        ["first", "later"],
        help_text="Time of its hint while it waits for work. `first`: at once. `later`: a fraction of a second later,"
        " if no server with less load has claimed the job by then.",
    )


class RuledOut(serializers.Serializer):
    server = ServerName()
    filter = serializers.CharField(
        help_text="First filter that excludes it: type, state, freshness, cordon, maintenance, tags, refused,"
        " slots or capacity."
    )
    detail = serializers.CharField(help_text="Explanation for people.")


class WaitingFor(serializers.Serializer):
    what = serializers.CharField(
        help_text="available_at; hold: it is on `hold`; limit: its key `limit` has no free slot; max_parallel: other"
        " items of the loop `step` must end first; or stop: the code of its last attempt may still run on `server`."
    )
    until = TimeField(allow_null=True)
    hold = serializers.UUIDField(required=False)
    server = ServerName(required=False)
    limit = serializers.CharField(required=False)
    step = serializers.CharField(required=False)


class PlacementAnswer(serializers.Serializer):
    eligible = Candidate(many=True, help_text="Servers that may get the job, least loaded first.")
    ruled_out = RuledOut(many=True)
    waiting_for = WaitingFor(allow_null=True, help_text="Event before which no server gets it.")


def one_or_many_schema(name: str, one: Any, many: Any) -> PolymorphicProxySerializer:
    """Return the schema of a body that is one object or many, for the OpenAPI document."""
    return PolymorphicProxySerializer(name, serializers=[one, many], resource_type_field_name=None, many=False)


SUBMITTED = one_or_many_schema("Submitted", SubmittedAnswer, JobAnswers)
