"""What the calls about jobs take and answer."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from controlplane.rest import SecondsField, StrictSerializer, TextField, WholeField
from jobs import selectors
from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services.heartbeats import Held
from jobs.services.reporting import Event, Report
from jobs.states import OnWorkerLost
from liveness.api.serializers import TagList
from liveness.services.heartbeats import Beat
from liveness.states import ServerState

METRICS_LIMIT = 100


class Running(StrictSerializer):
    attempt = serializers.UUIDField()
    pid = WholeField(required=False, allow_null=True, min_value=0)


class HeartbeatRequest(StrictSerializer):
    state = serializers.ChoiceField(list(ServerState), required=False, help_text="The state the server is going to.")
    metrics = serializers.DictField(required=False, help_text="Shown, never judged.")
    claimed = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=100_000)
    running = Running(many=True, required=False)
    schedulable = serializers.BooleanField(required=False, help_text="False: the server cordons itself.")
    reason = TextField(required=False, allow_blank=True, max_length=1000)

    def validate_metrics(self, metrics: dict[str, Any]) -> dict[str, Any]:
        if len(metrics) > METRICS_LIMIT:
            raise serializers.ValidationError(f"At most {METRICS_LIMIT} metrics.")
        return metrics

    def beat(self) -> Beat:
        said = self.validated_data
        state = ServerState(said["state"]) if "state" in said else None
        return Beat(state, said.get("metrics"), said.get("schedulable"), said.get("reason", ""))

    def held(self) -> Held:
        said = self.validated_data
        return Held(said.get("claimed", []), {row["attempt"]: row.get("pid") for row in said.get("running", [])})


class ClaimRequest(StrictSerializer):
    limit = WholeField(default=1, min_value=0, max_value=10_000)
    request_id = serializers.UUIDField(required=False, help_text="The same again returns the same attempts.")


class ReportedError(serializers.Serializer):
    code = TextField()
    message = TextField(max_length=100_000, allow_blank=True, default="")
    traceback = TextField(max_length=100_000, allow_blank=True, required=False)


# What an event may carry beside `attempt` and `event`; a field marked True must be there.
CARRIES: dict[Event, dict[str, bool]] = {
    Event.STARTED: {},
    Event.PROGRESS: {"progress": False, "message": False},
    Event.COMPLETED: {"output": False},
    Event.FAILED: {"error": True},
    Event.CANCELLED: {},
    Event.RELEASED: {"reason": True},
}


class ReportItem(StrictSerializer):
    attempt = serializers.UUIDField()
    event = serializers.ChoiceField(list(Event))
    output = serializers.JSONField(required=False, allow_null=True)
    error = ReportedError(required=False)
    reason = TextField(required=False, max_length=1000)
    progress = serializers.FloatField(required=False, min_value=0, max_value=1)
    message = TextField(required=False, allow_blank=True, max_length=1000)

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

    def reports_said(self) -> list[Report]:
        return [Report(**{**item, "event": Event(item["event"])}) for item in self.validated_data["reports"]]


TEXT_OR_LIST = "A text, run by /bin/sh, or a list of texts, run as they are."


class CommandField(serializers.Field):
    """The command of a script."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) and data:
            return data
        if isinstance(data, list) and data and all(isinstance(part, str) for part in data):
            return data
        raise serializers.ValidationError(TEXT_OR_LIST)

    def to_representation(self, value: Any) -> Any:
        return value


class ScriptAction(StrictSerializer):
    type = serializers.ChoiceField(["script"])
    runner = serializers.ChoiceField(["local", "docker", "pod"], default="local")
    command = CommandField(help_text=TEXT_OR_LIST)
    env = serializers.DictField(child=TextField(max_length=100_000, allow_blank=True), required=False)
    cwd = TextField(required=False, max_length=4096)
    image = TextField(required=False)


class CallableAction(StrictSerializer):
    type = serializers.ChoiceField(["callable"])
    path = serializers.RegexField(
        r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$",
        max_length=500,
        error_messages={"invalid": 'Write "package.module:function".'},
    )


class HandlerAction(StrictSerializer):
    type = serializers.ChoiceField(["handler"])
    name = TextField(max_length=100)


class ContainerAction(StrictSerializer):
    type = serializers.ChoiceField(["docker", "pod"])
    image = TextField()
    command = CommandField(required=False, help_text=TEXT_OR_LIST)


ACTIONS: dict[str, type[StrictSerializer]] = {
    "script": ScriptAction,
    "callable": CallableAction,
    "handler": HandlerAction,
    "docker": ContainerAction,
    "pod": ContainerAction,
}


class ActionField(serializers.DictField):
    """What is to be run: an object whose `type` says which other fields it has."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError('An action is an object, like {"type": "script", "command": "date"}.')
        kind = data.get("type")
        if not isinstance(kind, str) or kind not in ACTIONS:
            raise serializers.ValidationError({"type": [f"One of {', '.join(ACTIONS)} is needed here."]})
        action = ACTIONS[kind](data=data)
        action.is_valid(raise_exception=True)
        return dict(action.validated_data)


class JobRequest(StrictSerializer):
    action = ActionField()
    payload = serializers.JSONField(required=False, allow_null=True, help_text="Handed to the code.")
    tags = TagList(required=False, help_text="A worker must have them all, and those of the action.")
    priority = WholeField(required=False, help_text="Higher first.")
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    available_at = serializers.DateTimeField(required=False, help_text="Not to be claimed before.")
    on_worker_lost = serializers.ChoiceField(list(OnWorkerLost), required=False)
    key = TextField(required=False, help_text="The same key again returns the same job.")


class JobList(serializers.ListSerializer):
    """Up to 1000 jobs; errors say which by its place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=JobRequest(), max_length=1000, **options)


class AttemptAnswer(serializers.ModelSerializer):
    server = serializers.SerializerMethodField()

    class Meta:
        model = Attempt
        fields = (
            "id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "heartbeat_at", "progress",
            "message", "error",
        )  # fmt: skip

    def get_server(self, attempt: Attempt) -> dict[str, Any]:
        return {"id": attempt.server_id, "name": attempt.server.name}


class LateReportAnswer(serializers.ModelSerializer):
    attempt = serializers.SerializerMethodField()

    class Meta:
        model = LateReport
        fields = ("attempt", "event", "at", "reason")

    def get_attempt(self, report: LateReport) -> str:
        return str(report.attempt_id)


class JobAnswer(serializers.ModelSerializer):
    attempts = AttemptAnswer(many=True)
    timeline = serializers.SerializerMethodField()
    late_reports = LateReportAnswer(many=True)

    class Meta:
        model = WorkerJob
        fields = (
            "id", "kind", "state", "action", "payload", "tags", "required_tags", "priority", "timeout_seconds",
            "on_worker_lost", "resubmissions", "retries", "cancel_requested_at", "key", "output", "error",
            "created_at", "available_at", "finished_at", "attempts", "timeline", "late_reports",
        )  # fmt: skip

    def get_timeline(self, job: WorkerJob) -> list[dict[str, Any]]:
        return selectors.timeline(job)
