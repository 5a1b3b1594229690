"""What the calls of clients take and answer."""

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.rest import AnyField, SecondsField, StrictSerializer, TextField, WholeField
from jobs import selectors
from jobs.api.serializers.actions import ActionField
from jobs.models import Attempt, LateReport, WorkerJob
from jobs.states import OnWorkerLost
from liveness.api.serializers import TagList


class JobRequest(StrictSerializer):
    action = ActionField()
    payload = AnyField(required=False, help_text="Handed to the code.")
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


class ServerName(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()


class TimelineEntry(serializers.Serializer):
    attempt = serializers.IntegerField(allow_null=True, help_text="Null: of the job itself.")
    state = serializers.CharField()
    at = serializers.DateTimeField()
    server = ServerName(allow_null=True)
    reason = serializers.CharField()


class AttemptAnswer(serializers.ModelSerializer):
    error = AnyField()
    server = serializers.SerializerMethodField()

    class Meta:
        model = Attempt
        fields = (
            "id", "number", "server", "state", "claimed_at", "started_at", "finished_at", "heartbeat_at", "progress",
            "message", "error",
        )  # fmt: skip

    @extend_schema_field(ServerName)
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
    action = serializers.DictField()
    payload = AnyField()
    output = AnyField()
    error = AnyField()
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

    @extend_schema_field(TimelineEntry(many=True))
    def get_timeline(self, job: WorkerJob) -> list[dict[str, Any]]:
        return selectors.timeline(job)


class JobAnswers(serializers.Serializer):
    items = JobAnswer(many=True, help_text="In the order of the request.")


def one_or_many(name: str, one: Any, many: Any) -> PolymorphicProxySerializer:
    """For the OpenAPI document."""
    return PolymorphicProxySerializer(name, serializers=[one, many], resource_type_field_name=None, many=False)


SUBMISSION = one_or_many("Submission", JobRequest, JobRequest(many=True))
SUBMITTED = one_or_many("Submitted", JobAnswer, JobAnswers)
