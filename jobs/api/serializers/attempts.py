"""Serializers of attempts, and of what happened to them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.rest import (
    AnyField,
    TimeField,
)
from jobs.models import Attempt, LateReport


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
