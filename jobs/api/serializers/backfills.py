"""Requests and responses of the calls about backfills of triggers."""

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.rest import ChoiceField, NoteField, StrictSerializer, TimeField, WholeField
from jobs.models import Backfill
from jobs.states import BackfillState


class BackfillRequest(StrictSerializer):
    to = TimeField(help_text="First time after the period. It must not be in the future.")
    max_running = WholeField(
        required=False, default=1, min_value=1, max_value=100, help_text="Largest number of executions at once."
    )
    note = NoteField()

    def get_fields(self) -> dict[str, Any]:
        # "from" is a keyword of Python.
        return {"from": TimeField(help_text="First time of the period."), **super().get_fields()}


class BackfillAnswer(ModelAnswer):
    trigger = serializers.UUIDField(source="trigger_id")
    to = TimeField(source="end_at")
    state = ChoiceField(BackfillState.choices())
    total = serializers.IntegerField(help_text="Number of its slots. Those that had fired before are left out.")
    waiting = serializers.IntegerField(help_text="Number of its slots that have not started.")
    running = serializers.IntegerField(help_text="Number of its slots that are evaluated or whose execution runs.")

    class Meta:
        model = Backfill
        fields = (
            "id", "trigger", "to", "max_running", "state", "total", "waiting", "running", "by", "note", "created_at",
            "finished_at",
        )  # fmt: skip

    def get_fields(self) -> dict[str, Any]:
        return {"from": TimeField(source="start_at"), **super().get_fields()}


EXAMPLE = OpenApiExample(
    "Run every slot of January, five at once",
    {"from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z", "max_running": 5},
    request_only=True,
)
