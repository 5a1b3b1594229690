"""Requests and responses of clients' calls about jobs."""

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.core.bounds import LONGEST_WAIT
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
from jobs.api.serializers.actions import ActionField, PriorityField
from jobs.api.serializers.attempts import AttemptAnswer, LateReportAnswer, TimelineEntry
from jobs.api.serializers.deadlines import DEADLINE_FIELDS, WithDeadline
from jobs.api.serializers.limits import LimitsField, describe_parking
from jobs.api.serializers.notify import NotifyAnswer, WithNotify
from jobs.api.serializers.secrets import MaskedObjectField, MaskedPayloadField, refuse_wrong_payload
from jobs.api.serializers.waits import WaitAnswer
from jobs.choices import Isolation, OnConflict, OnWorkerLost, RetryBackoff, UniqueWhile, Unmatched
from jobs.models import WorkerJob, named_limits
from jobs.selectors.contents import LARGE
from jobs.selectors.timeline import job_timeline
from jobs.states import Flag, JobState
from liveness.api.serializers.registration import RequiredTags

TRACEPARENT = r"\A00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z"
"""Pattern of version 00 of W3C's Trace Context."""


@extend_schema_field(
    {"oneOf": [{"type": "string", "enum": list(UniqueWhile)}, {"type": "number", "exclusiveMinimum": 0}]}
)
class WhileField(serializers.Field):
    """Time in which a unique key finds a job: while it is in a state, or for some seconds after its submission."""

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


class JobRequest(WithDeadline, WithNotify):
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


class JobAnswer(NotifyAnswer):
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
            "retry_delay_seconds", "retry_backoff", "retry_on", "isolation", *DEADLINE_FIELDS, "notify",
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
        return describe_parking(job.parked_by) if job.state == JobState.PENDING else None


class SubmittedAnswer(JobAnswer):
    duplicate = serializers.BooleanField(help_text="True: its unique key found this job, which was there before.")

    class Meta(JobAnswer.Meta):
        fields: Any = (*JobAnswer.Meta.fields, "duplicate")


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


def one_or_many_schema(name: str, one: Any, many: Any) -> PolymorphicProxySerializer:
    """Return the schema of a body that is one object or many, for the OpenAPI document."""
    return PolymorphicProxySerializer(name, serializers=[one, many], resource_type_field_name=None, many=False)


SUBMITTED = one_or_many_schema("Submitted", SubmittedAnswer, JobAnswers)
