"""What the calls of workers take and answer."""

from typing import Any, NamedTuple
from uuid import UUID

from rest_framework import serializers

from controlplane.agent.limits import CHECKPOINT_LIMIT, LINE_LIMIT, MESSAGE_LIMIT, REPORT_LINES_LIMIT, SIZE_LIMIT
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    IdField,
    NumberField,
    ObjectField,
    StrictSerializer,
    WholeField,
    YesNoField,
    validate_body,
)
from jobs.api.serializers.jobs import TRACEPARENT
from jobs.models import LogLine
from jobs.services.heartbeats import LISTED_LIMIT, HeldAttempts
from jobs.services.reports import Event, Report
from liveness.services.heartbeats import ServerHeartbeat
from liveness.states import ServerState

METRICS_LIMIT, METRICS_SIZE_LIMIT = 100, 8 * 1024
HOLDERS_LIMIT = 1000
LISTED_HELP = f"With the others at most {LISTED_LIMIT}, or twice the max_concurrent of the server where that is more."
SIZE_LIMIT_TEXT = f"At most {SIZE_LIMIT} bytes of compact JSON in UTF-8; one with more is refused for itself with"


class Running(StrictSerializer):
    attempt = IdField()
    pid = WholeField(required=False, allow_null=True, min_value=0)


class HeartbeatRequest(StrictSerializer):
    state = ChoiceField(ServerState.choices(), required=False, help_text="The state the server is going to.")
    metrics = ObjectField(
        max_bytes=METRICS_SIZE_LIMIT,
        required=False,
        help_text=f"Shown, never judged; at most {METRICS_LIMIT}, of {METRICS_SIZE_LIMIT} bytes of JSON in all.",
    )
    claimed = serializers.ListField(child=IdField(), required=False, max_length=100_000, help_text=LISTED_HELP)
    running = Running(many=True, required=False, help_text=LISTED_HELP)
    stopped = serializers.ListField(
        child=IdField(),
        required=False,
        max_length=100_000,
        help_text="Of the attempts that an answer named as `lost`, those of which nothing runs any more: their jobs go "
        "on elsewhere then. Left out: attempts that were named before and are not listed have been stopped.",
    )
    holders = serializers.ListField(
        child=IdField(),
        required=False,
        max_length=HOLDERS_LIMIT,
        help_text="Instance ids that hold messages of a Celery broker: the answer says which of them are lost.",
    )
    schedulable = YesNoField(required=False, help_text="False: the server cordons itself.")
    reason = FreeTextField(required=False, allow_blank=True, max_length=MESSAGE_LIMIT)

    def validate_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        if len(metrics) > METRICS_LIMIT:
            raise serializers.ValidationError(f"At most {METRICS_LIMIT} metrics.")
        return metrics


class Heard(NamedTuple):
    """What the body of a `HeartbeatRequest` says."""

    beat: ServerHeartbeat
    held: HeldAttempts
    holders: list[UUID] | None


def to_heartbeat(data: object) -> Heard:
    """What the body of a `HeartbeatRequest` says. Raises ValidationError."""
    fields = validate_body(HeartbeatRequest, data)
    state = ServerState(fields["state"]) if "state" in fields else None
    running = {row["attempt"]: row.get("pid") for row in fields.get("running", [])}
    is_complete = "claimed" in fields or "running" in fields
    return Heard(
        ServerHeartbeat(
            state, fields.get("metrics"), fields.get("schedulable"), fields.get("reason", ""), witness=is_complete
        ),
        HeldAttempts(fields.get("claimed", []), running, fields.get("stopped"), is_complete=is_complete),
        fields.get("holders"),
    )


class HeartbeatAnswer(serializers.Serializer):
    state = serializers.CharField()
    heartbeat_interval_seconds = serializers.FloatField()
    fence_after_seconds = serializers.FloatField(
        allow_null=True, help_text="Stop the jobs' code when no heartbeat was answered for this long."
    )
    cancel = serializers.ListField(child=serializers.UUIDField(), help_text="Attempts to cancel.")
    lost = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Attempts that are no longer the server's: stop their code, then list them in `stopped`.",
    )
    cordoned = serializers.BooleanField()
    maintenance = serializers.BooleanField()
    drain = serializers.DictField(allow_null=True)
    forsaken = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        help_text="Of the holders of this server's API token, or of one that is revoked or expired, those that are"
        " lost: what they hold may be given to others.",
    )
    unknown = serializers.ListField(
        child=serializers.UUIDField(), required=False, help_text="Of the holders, those that no server registered as."
    )
    send = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Ids of Celery tasks to be sent again out of the broker's quarantine.",
    )


def describe_heartbeat_answer(row: Any) -> dict[str, Any]:
    """What a server that was heard is answered: a `HeartbeatAnswer`."""
    return {
        "state": row.state,
        "heartbeat_interval_seconds": row.heartbeat_interval,
        "fence_after_seconds": row.fence_after,
        "cancel": getattr(row, "cancel", []),
        "lost": getattr(row, "lost", []),
        "cordoned": row.cordoned_by is not None,
        "maintenance": getattr(row, "maintenance", False),
        "drain": None if row.drain_deadline is None else {"deadline": row.drain_deadline},
    }


def describe_holders(row: Any) -> dict[str, Any]:
    """What a server is answered that said who holds messages of its broker."""
    return {name: getattr(row, name, []) for name in ("forsaken", "unknown", "send")}


class ClaimRequest(StrictSerializer):
    limit = WholeField(default=1, min_value=0, max_value=10_000)
    request_id = IdField(required=False, help_text="The same id again returns the same attempts.")


class ClaimedJob(serializers.Serializer):
    id = serializers.UUIDField()
    kind = serializers.CharField()
    action = serializers.DictField()
    payload = AnyField()
    timeout_seconds = serializers.FloatField(allow_null=True)
    execution = serializers.UUIDField(allow_null=True)
    step = serializers.CharField(allow_null=True)
    checkpoint = AnyField(help_text="The latest checkpoint of an earlier attempt; null: none.")
    traceparent = serializers.CharField(allow_null=True, help_text="The trace in which it was submitted, if any.")
    former_traceparent = serializers.CharField(
        allow_null=True, help_text="What the STARTED of the attempt before has brought: for a link."
    )


class ClaimedAttempt(serializers.Serializer):
    id = serializers.UUIDField()
    number = serializers.IntegerField(help_text="The fencing token of the job's code.")
    job = ClaimedJob()


class ClaimAnswer(serializers.Serializer):
    attempts = ClaimedAttempt(many=True)


class ReportedError(StrictSerializer):
    code = FreeTextField()
    message = FreeTextField(max_length=None, allow_blank=True, default="")
    traceback = FreeTextField(max_length=None, allow_blank=True, required=False)
    exception = FreeTextField(required=False, help_text="The class of a Python exception, as package.module.Class.")


# What an event may carry beside `attempt` and `event`; a field marked True must be there.
CARRIES: dict[Event, dict[str, bool]] = {
    Event.STARTED: {"traceparent": False},
    Event.PROGRESS: {"progress": False, "message": False},
    Event.CHECKPOINT: {"value": True},
    Event.COMPLETED: {"output": False},
    Event.FAILED: {"error": True},
    Event.CANCELLED: {},
    Event.RELEASED: {"reason": True},
    Event.LOG: {"stream": True, "lines": True, "sequence": False},
}


class ReportItem(StrictSerializer):
    attempt = IdField()
    event = ChoiceField(list(Event))
    output = AnyField(required=False, help_text=f"{SIZE_LIMIT_TEXT} `output_too_large`.")
    error = ReportedError(required=False, help_text=f"{SIZE_LIMIT_TEXT} `error_too_large`.")
    reason = FreeTextField(required=False, max_length=MESSAGE_LIMIT)
    progress = NumberField(required=False, min_value=0, max_value=1)
    message = FreeTextField(required=False, allow_blank=True, max_length=MESSAGE_LIMIT)
    value = AnyField(
        required=False,
        help_text="What the next attempt of the job is to find; null: nothing any more. At most"
        f" {CHECKPOINT_LIMIT} bytes of compact JSON in UTF-8; one with more is refused for itself with"
        " `checkpoint_too_large`, and the one before it stays.",
    )
    traceparent = serializers.RegexField(
        TRACEPARENT, required=False, help_text="The span of the attempt: the next one is told, for a link."
    )
    stream = ChoiceField(LogLine.Stream.values, required=False)
    lines = serializers.ListField(
        child=FreeTextField(max_length=LINE_LIMIT, allow_blank=True),
        min_length=1,
        max_length=REPORT_LINES_LIMIT,
        required=False,
    )
    sequence = WholeField(
        required=False, min_value=0, help_text="Ascending in the attempt: lines that come again are not stored again."
    )

    def validate(self, item: dict[str, Any]) -> dict[str, Any]:
        event = Event(item["event"])
        carries = CARRIES[event]
        problems = {
            field: [f"A report of {event} does not have this field."]
            for field in item
            if field not in {"attempt", "event", *carries}
        }
        problems |= {
            field: [f"A report of {event} needs this field."]
            for field, needed in carries.items()
            if needed and field not in item
        }
        if problems:
            raise serializers.ValidationError(problems)
        return item


class ReportsRequest(StrictSerializer):
    reports = serializers.ListField(child=ReportItem(), max_length=1000)


def to_reports(data: object) -> list[Report]:
    """What the body of a `ReportsRequest` says. Raises ValidationError."""
    return [
        Report(**{**item, "event": Event(item["event"])}) for item in validate_body(ReportsRequest, data)["reports"]
    ]


class ReportResult(serializers.Serializer):
    attempt = serializers.UUIDField()
    accepted = serializers.BooleanField()
    replayed = serializers.BooleanField(help_text="It had been accepted before.")
    state = serializers.CharField(allow_null=True, help_text="Of the attempt, now.")
    code = serializers.CharField(allow_null=True, help_text="Why it was refused.")
    detail = serializers.CharField(required=False, help_text="For people, where the code does not say all.")


class ReportsAnswer(serializers.Serializer):
    results = ReportResult(many=True)
