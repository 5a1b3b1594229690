"""Requests and responses of workers' calls."""

from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from rest_framework import serializers

from controlplane.agent.limits import (
    AHEAD_LIMIT,
    MESSAGE_LIMIT,
)
from controlplane.core.json_bodies import stored_json
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    IdField,
    ObjectField,
    StrictSerializer,
    WholeField,
    YesNoField,
    validate_body,
)
from jobs.services.heartbeats import LISTED_LIMIT, ListedAttempts
from jobs.sql.rows.claiming import ClaimedAttempt
from liveness.services.heartbeats import ServerHeartbeat
from liveness.services.tokens import ServerToken
from liveness.states import ServerState

METRICS_LIMIT, METRICS_SIZE_LIMIT = 100, 8 * 1024
HOLDERS_LIMIT = 1000
LISTED_HELP = (
    f"All lists together have at most {LISTED_LIMIT} ids, or twice the server's max_concurrent if that is more."
)


class Running(StrictSerializer):
    attempt = IdField()
    pid = WholeField(required=False, allow_null=True, min_value=0)


class HeartbeatRequest(StrictSerializer):
    state = ChoiceField(ServerState.choices(), required=False, help_text="New state of the server.")
    metrics = ObjectField(
        max_bytes=METRICS_SIZE_LIMIT,
        required=False,
        help_text=f"Metrics for the pages. At most {METRICS_LIMIT}, with {METRICS_SIZE_LIMIT} bytes of JSON in all.",
    )
    claimed = serializers.ListField(child=IdField(), required=False, max_length=100_000, help_text=LISTED_HELP)
    running = Running(many=True, required=False, help_text=LISTED_HELP)
    stopped = serializers.ListField(
        child=IdField(),
        required=False,
        max_length=100_000,
        help_text="Attempts of `lost` in earlier responses whose code no longer runs, so that their jobs may start "
        "elsewhere. Without this field, lost attempts that the heartbeat does not list count as stopped.",
    )
    holders = serializers.ListField(
        child=IdField(),
        required=False,
        max_length=HOLDERS_LIMIT,
        help_text="Instance ids of servers that hold messages of a Celery broker. The response names the lost ones.",
    )
    schedulable = YesNoField(required=False, help_text="False: the server cordons itself.")
    reason = FreeTextField(required=False, allow_blank=True, max_length=MESSAGE_LIMIT)

    def validate_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        if len(metrics) > METRICS_LIMIT:
            raise serializers.ValidationError(f"At most {METRICS_LIMIT} metrics.")
        return metrics


class Heard(NamedTuple):
    """Content of a `HeartbeatRequest` body."""

    beat: ServerHeartbeat
    held: ListedAttempts
    holders: list[UUID] | None


def to_heartbeat(data: object) -> Heard:
    """Return the heartbeat of a `HeartbeatRequest` body. Raise ValidationError."""
    fields = validate_body(HeartbeatRequest, data)
    state = ServerState(fields["state"]) if "state" in fields else None
    running = {row["attempt"]: row.get("pid") for row in fields.get("running", [])}
    is_complete = "claimed" in fields or "running" in fields
    return Heard(
        ServerHeartbeat(
            state, fields.get("metrics"), fields.get("schedulable"), fields.get("reason", ""), witness=is_complete
        ),
        ListedAttempts(
            fields.get("claimed", []),
            running,
            fields.get("stopped"),
            is_complete=is_complete,
            lists_running="running" in fields,
        ),
        fields.get("holders"),
    )


class PresentConfig(serializers.Serializer):
    max_concurrent = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())


class HeartbeatAnswer(serializers.Serializer):
    state = serializers.CharField()
    heartbeat_interval_seconds = serializers.FloatField()
    fence_after_seconds = serializers.FloatField(
        allow_null=True, help_text="Seconds without a response to a heartbeat after which the jobs' code must stop."
    )
    cancel = serializers.ListField(child=serializers.UUIDField(), help_text="Attempts to cancel.")
    lost = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Attempts that the server no longer holds. Stop their code, then list them in `stopped`.",
    )
    dump = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Running attempts whose stacks an operator wants to see. Report them with STACK.",
    )
    cordoned = serializers.BooleanField()
    maintenance = serializers.BooleanField()
    drain = serializers.DictField(allow_null=True)
    config = PresentConfig(
        required=False,
        help_text="Slots and tags of the server, which an operator may change. A worker uses them from now on.",
    )
    token = serializers.CharField(
        required=False,
        help_text="New server token, if an earlier key signed the one of this call. Use it from now on, because the"
        " earlier key will be removed.",
    )
    forsaken = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        help_text="Lost holders. Other workers may take their messages. Only holders of this server's API token, or of"
        " a revoked or expired one, are listed.",
    )
    unknown = serializers.ListField(
        child=serializers.UUIDField(), required=False, help_text="Holders that no server has registered with."
    )
    send = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Ids of Celery tasks to send from the broker's quarantine back to their queue.",
    )
    held_queues = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Queues of this Celery worker that are on hold. It consumes none of them until they are not listed.",
    )


def describe_heartbeat_answer(row: Any, token: ServerToken) -> dict[str, Any]:
    """Return the fields of a `HeartbeatAnswer` for a server that called with this token."""
    return {
        **({} if token.replacement is None else {"token": token.replacement}),
        **({"config": {"max_concurrent": row.max_concurrent, "tags": row.tags}} if hasattr(row, "tags") else {}),
        "state": row.state,
        "heartbeat_interval_seconds": row.heartbeat_interval,
        "fence_after_seconds": row.fence_after,
        "cancel": getattr(row, "cancel", []),
        "lost": getattr(row, "lost", []),
        "dump": getattr(row, "dump", []),
        "cordoned": row.cordoned_by is not None,
        "maintenance": getattr(row, "maintenance", False),
        "drain": None if row.drain_deadline is None else {"deadline": row.drain_deadline},
    }


def describe_holders(row: Any) -> dict[str, Any]:
    """Return the additional fields of the response to a heartbeat with holders."""
    return {name: getattr(row, name, []) for name in ("forsaken", "unknown", "send", "held_queues")}


class ClaimRequest(StrictSerializer):
    limit = WholeField(default=1, min_value=0, max_value=10_000)
    ahead = WholeField(
        default=0, min_value=0, max_value=AHEAD_LIMIT,
        help_text="Number of jobs that the server may hold beyond its slots, for tasks that end within milliseconds.",
    )  # fmt: skip
    request_id = IdField(required=False, help_text="The same id again returns the same attempts.")


class ClaimedJob(serializers.Serializer):
    id = serializers.UUIDField()
    kind = serializers.CharField()
    action = serializers.DictField()
    payload = AnyField()
    payload_from = serializers.DictField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="Values in the payload that came from the execution: JSON pointer and path. Nothing in them names a"
        " secret.",
    )
    timeout_seconds = serializers.FloatField(allow_null=True)
    execution = serializers.UUIDField(allow_null=True)
    step = serializers.CharField(allow_null=True)
    checkpoint = AnyField(help_text="Last checkpoint of an earlier attempt; null: none.")
    traceparent = serializers.CharField(allow_null=True, help_text="Trace in which it was submitted, if any.")
    former_traceparent = serializers.CharField(
        allow_null=True, help_text="Span of the previous attempt, from its STARTED report, for a span link."
    )

    isolation = serializers.CharField(
        allow_null=True, help_text="`process`: the attempt needs a process of its own; null: the worker decides."
    )
    worker_slots = serializers.IntegerField(help_text="Slots of the worker that the attempt uses.")


STORED_JSON = ("action", "payload", "payload_from", "checkpoint")
JOB_FIELDS = tuple(ClaimedJob().fields)
read_job = attrgetter(*("job" if name == "id" else name for name in JOB_FIELDS))


def describe_claimed(row: ClaimedAttempt) -> dict[str, Any]:
    """Return the response about an attempt. Each field of its job is the column with this name, and `id` is `job`."""
    job = dict(zip(JOB_FIELDS, read_job(row), strict=True))
    for name in STORED_JSON:
        job[name] = stored_json(job[name])
    return {"id": row.id, "number": row.number, "job": job}


class ClaimedAttemptAnswer(serializers.Serializer):
    id = serializers.UUIDField()
    number = serializers.IntegerField(help_text="Fencing token of the job's code.")
    job = ClaimedJob()


class ClaimAnswer(serializers.Serializer):
    attempts = ClaimedAttemptAnswer(many=True)
    slots_wanted = serializers.IntegerField(
        required=False,
        help_text="Slots that the next job needs. It is there if fewer are free and the jobs behind it wait for it:"
        " claim again when so many are free.",
    )
