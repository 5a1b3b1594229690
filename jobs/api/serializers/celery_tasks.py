"""Request and response of a Celery worker's call about its tasks."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import (
    ChoiceField,
    FreeTextField,
    IdField,
    NumberField,
    SecondsField,
    StrictSerializer,
    TextField,
    WholeField,
    validate_body,
)
from jobs.services.celery_tasks import BATCH_LIMIT, NAMES_LIMIT
from jobs.states import TaskState

COUNT_LIMIT = 2**53


class TaskError(StrictSerializer):
    code = FreeTextField()
    message = FreeTextField(max_length=2000, allow_blank=True, default="")
    traceback = FreeTextField(max_length=8000, allow_blank=True, required=False)


class TaskItem(StrictSerializer):
    attempt = IdField(help_text="Chosen by the worker for each delivery; the same id again means the same attempt.")
    id = TextField(help_text="Id of the task.")
    name = TextField(help_text="Name of the task.")
    state = ChoiceField(list(TaskState))
    queue = TextField(default="", allow_blank=True)
    eta = TextField(required=False, allow_null=True, max_length=64)
    retries = WholeField(default=0, min_value=0, max_value=2**31 - 1)
    held_seconds = SecondsField(default=0, help_text="Seconds since it was received.")
    running_seconds = SecondsField(required=False, allow_null=True, help_text="Seconds since its code started.")
    args = TextField(required=False, allow_null=True, max_length=1000, allow_blank=True)
    result = TextField(required=False, allow_null=True, max_length=2000, allow_blank=True)
    error = TaskError(required=False, allow_null=True)
    reason = FreeTextField(required=False, allow_null=True, max_length=1000)

    def get_fields(self) -> dict[str, serializers.Field]:
        # Every serializer field already has attributes of these names, so they cannot be class attributes.
        return {
            **super().get_fields(),
            **{name: TextField(required=False, allow_null=True) for name in ("root", "parent")},
        }


class TaskSums(StrictSerializer):
    """Counts of the ended tasks of one name, since the counting process started."""

    name = TextField()
    completed = WholeField(default=0, min_value=0, max_value=COUNT_LIMIT)
    failed = WholeField(default=0, min_value=0, max_value=COUNT_LIMIT)
    retried = WholeField(default=0, min_value=0, max_value=COUNT_LIMIT)
    lost = WholeField(default=0, min_value=0, max_value=COUNT_LIMIT)
    seconds = NumberField(default=0, min_value=0, help_text="Seconds that their code ran in all.")


class TasksRequest(StrictSerializer):
    tasks = serializers.ListField(child=TaskItem(), max_length=BATCH_LIMIT, required=False)
    counter = IdField(required=False, help_text="Id of the counting process. Each process starts at 0.")
    tally = serializers.ListField(
        child=TaskSums(),
        max_length=NAMES_LIMIT,
        required=False,
        help_text=f"Counts by task name. At most {NAMES_LIMIT} names of a server are stored.",
    )

    def validate_tally(self, tally: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({sums["name"] for sums in tally}) < len(tally):
            raise serializers.ValidationError("Each name may occur only once.")
        return tally

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("tally") and "counter" not in fields:
            raise serializers.ValidationError({"counter": ["A tally needs this field."]})
        return fields


def to_tasks(data: object) -> dict[str, Any]:
    """Return the content of a `TasksRequest` body. Raise ValidationError."""
    fields = validate_body(TasksRequest, data)
    return {"tasks": fields.get("tasks", []), "tally": fields.get("tally", []), "counter": fields.get("counter")}


class TasksAnswer(serializers.Serializer):
    cancel = serializers.ListField(child=serializers.UUIDField(), help_text="Attempts whose tasks must be revoked.")
    late = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Attempts whose record was superseded: they had already ended.",
    )
    again = serializers.ListField(
        child=serializers.UUIDField(),
        help_text="Quarantined tasks that another worker still seems to run. Send these records again "
        "until that worker is known to be lost.",
    )
