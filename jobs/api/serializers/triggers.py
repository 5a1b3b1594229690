"""Requests and responses of the calls about triggers."""

from collections.abc import Mapping
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.fields import empty

from controlplane.agent.secrets.values import restore
from controlplane.core.answers import ModelAnswer
from controlplane.core.json_bodies import read_json, write_json
from controlplane.core.paging import PageFilter
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    NoteField,
    SecondsField,
    StrictSerializer,
    TextField,
    TimeField,
    WholeField,
    YesNoField,
    shared_serializer,
)
from jobs.api.serializers.actions import ActionField, PriorityField
from jobs.api.serializers.executions import Definition, SilentStep, refuse_oversized_inputs
from jobs.api.serializers.secrets import InputsField, MaskedField, MaskedObjectField, refuse_wrong_payload
from jobs.api.serializers.signals import SignalNameField
from jobs.choices import Missed, Overlap
from jobs.models import Trigger, TriggerSlot
from jobs.schedules import find_zone, read_cron
from jobs.services.execution_rows import count_payload_bytes
from jobs.states import SlotOutcome
from jobs.trigger_errors import TriggerUnusable
from liveness.api.serializers.registration import RequiredTags


class CronField(TextField):
    """Cron expression of five fields, or of six with seconds first."""

    def to_internal_value(self, data: object) -> str:
        cron = super().to_internal_value(data)
        try:
            next(read_cron(cron, timezone.now()))
        except TriggerUnusable as error:
            raise serializers.ValidationError(error.detail) from None
        except StopIteration:
            raise serializers.ValidationError(f"The cron expression {cron!r} matches no future time.") from None
        return cron


class SignalPatternField(SignalNameField):
    """Name of a signal, or `prefix:*` for all signals with this prefix."""

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if "*" in name.removesuffix(":*"):
            raise serializers.ValidationError(
                f"{name!r} is neither the name of a signal nor a prefix; use one like paid:42 or paid:*."
            )
        return name


class ZoneField(TextField):
    """Name of a time zone."""

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        try:
            find_zone(name)
        except TriggerUnusable as error:
            raise serializers.ValidationError(error.detail) from None
        return name


class Template(Definition):
    """Execution that a trigger starts. It must be complete, also in a change of the trigger."""

    inputs = InputsField(
        required=False,
        help_text="Inputs of the execution if the evaluation returns none. Without an evaluation, `trigger` and `slot` "
        "are added.",
    )
    # No token submits these executions, so no secret could sign notifications.
    steps = SilentStep(many=True, allow_empty=False)
    notify: Any = None

    def run_validation(self, data: object = empty) -> Any:
        if self.parent is None or data is empty:
            return super().run_validation(data)
        return read_json(write_json(shared_serializer(Template).run_validation(data)))

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        definition = super().validate(definition)
        refuse_oversized_inputs("inputs", count_payload_bytes(definition, definition.get("inputs", {})))
        return definition


MASKED = ("action", "payload", "execution")
"""Fields of a trigger whose secrets are masked in responses."""


STORED = (
    "name", "cron", "interval_seconds", "on_signal", "timezone", "start_at", "end_at", "jitter_seconds", "missed",
    "overlap", "pause_after_failures", "action", "payload", "tags", "priority",
    "worker_slots", "timeout_seconds", "max_retries", "execution",
)  # fmt: skip
"""Fields of a trigger that requests set."""


def find_problems(trigger: Trigger) -> dict[str, Any]:
    """Return the errors of a stored trigger by field.

    An upgrade may make a trigger invalid, for example if it removes a time zone.
    """
    stored = {name: value for name in STORED if (value := getattr(trigger, name)) is not None}
    request = TriggerRequest(data=stored)
    return {} if request.is_valid() else dict(request.errors)


def restore_fields(data: Mapping[str, Any], trigger: Trigger | None) -> dict[str, Any]:
    """Return the fields of a request with masked values replaced by the stored ones."""
    return {
        name: restore(value, getattr(trigger, name)) if trigger is not None and name in MASKED else value
        for name, value in data.items()
    }


SCHEDULES = ("cron", "interval_seconds", "on_signal")
"""A trigger has exactly one of these fields."""


class TriggerRequest(StrictSerializer):
    name = TextField()
    cron = CronField(required=False, allow_null=True)
    interval_seconds = SecondsField(required=False, allow_null=True, min_value=1)
    on_signal = SignalPatternField(
        required=False,
        allow_null=True,
        help_text="Name of a signal, or `prefix:*`: each such signal starts one execution, with `signal` and `body` in "
        "its inputs.",
    )
    timezone = ZoneField(required=False, help_text="Time zone of the cron expression (default: UTC).")
    start_at = TimeField(required=False, allow_null=True, help_text="No slot is before this time.")
    end_at = TimeField(required=False, allow_null=True, help_text="No slot is after this time.")
    jitter_seconds = SecondsField(
        required=False,
        help_text="Each slot starts late by a part of this. Each trigger has its own part, which stays the same.",
    )
    action = ActionField(
        required=False,
        allow_null=True,
        help_text='Action whose output decides if the execution starts, like {"fire": true, "inputs": {}}. '
        "Without an action, or with null, the execution starts at once.",
    )
    payload = AnyField(required=False)
    tags = RequiredTags(required=False)
    priority = PriorityField(required=False, help_text="Priority of its evaluations; higher ones are claimed first.")
    worker_slots = WholeField(
        required=False, min_value=1, max_value=1000, help_text="Slots of its worker for an evaluation. Default: 1."
    )
    timeout_seconds = SecondsField(
        required=False, min_value=0.001, help_text="Timeout of each attempt of an evaluation. Default: 5 minutes."
    )
    max_retries = WholeField(
        required=False,
        min_value=0,
        max_value=1000,
        help_text="Number of retries of an evaluation after an error of its code. Default: 1.",
    )
    enabled = YesNoField(required=False)
    missed = ChoiceField(list(Missed), required=False, help_text="Handling of slots that passed without an evaluation.")
    overlap = ChoiceField(
        list(Overlap), required=False, help_text="Handling of a slot while an earlier execution of the trigger runs."
    )
    pause_after_failures = WholeField(
        required=False,
        allow_null=True,
        min_value=1,
        help_text="Number of FAILED executions in a row that sets `enabled` to false. Enabling starts the count again.",
    )
    execution = Template()
    note = NoteField(write_only=True)

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(restore_fields(data, self.instance) if isinstance(data, Mapping) else data)

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        kinds = [name for name in SCHEDULES if fields.get(name, getattr(self.instance, name, None)) is not None]
        if len(kinds) != 1:
            detail = ["Give either cron or interval_seconds, or on_signal; null removes one of them."]
            raise serializers.ValidationError(dict.fromkeys(kinds or SCHEDULES, detail))
        if kinds == ["on_signal"] and fields.get("jitter_seconds", getattr(self.instance, "jitter_seconds", 0)):
            raise serializers.ValidationError({"jitter_seconds": ["A trigger on a signal has no jitter; give 0."]})
        start, end = (fields.get(name, getattr(self.instance, name, None)) for name in ("start_at", "end_at"))
        if start is not None and end is not None and end < start:
            raise serializers.ValidationError({"end_at": [f"Give a time after start_at ({start.isoformat()})."]})
        action = fields.get("action", getattr(self.instance, "action", None))
        if action is not None:
            refuse_wrong_payload(action, fields.get("payload"))
        return fields


class SlotAnswer(ModelAnswer):
    outcome = ChoiceField(SlotOutcome.choices())
    job = serializers.UUIDField(source="job_id", allow_null=True)
    execution = serializers.UUIDField(source="execution_id", allow_null=True)

    class Meta:
        model = TriggerSlot
        fields = ("slot", "outcome", "by", "note", "signal", "job", "execution")


class TriggerAnswer(ModelAnswer):
    action = MaskedObjectField(allow_null=True)
    payload = MaskedField()
    execution = MaskedObjectField()
    slots = SlotAnswer(many=True, source="last_slots", help_text="Last slots, latest first.")

    class Meta:
        model = Trigger
        fields = (
            "id", "name", "namespace", "cron", "interval_seconds", "on_signal", "timezone", "start_at", "end_at",
            "jitter_seconds", "action", "payload", "tags", "priority", "worker_slots", "timeout_seconds", "max_retries",
            "enabled", "missed", "overlap", "pause_after_failures", "failures_in_row", "execution", "next_slot_at",
            "created_at", "slots",
        )  # fmt: skip


class TriggerFilter(PageFilter):
    heavy = ("execution", "payload", "action")


class TriggerPage(serializers.Serializer):
    items = TriggerAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")
