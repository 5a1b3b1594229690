"""What the calls about triggers take and answer."""

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from cronsim import CronSim, CronSimError
from django.utils import timezone
from rest_framework import serializers
from rest_framework.fields import empty

from controlplane.agent.secret_values import restore
from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    NoteField,
    SecondsField,
    StrictSerializer,
    TextField,
    WholeField,
    YesNoField,
    shared_serializer,
)
from jobs.api.serializers.actions import ActionField, PriorityField
from jobs.api.serializers.executions import Definition, refuse_oversized_inputs
from jobs.api.serializers.secrets import InputsField, MaskedField, MaskedObjectField, refuse_wrong_payload
from jobs.models import Trigger, TriggerSlot
from jobs.services.executions import count_payload_bytes
from jobs.states import Missed, SlotOutcome
from liveness.api.serializers.registration import TagList


class CronField(TextField):
    """A cron expression, of five fields or six with seconds before them."""

    def to_internal_value(self, data: object) -> str:
        cron = super().to_internal_value(data)
        try:
            next(CronSim(cron, timezone.now()))
        except (CronSimError, StopIteration) as error:
            why = str(error) or "it never comes"
            raise serializers.ValidationError(f'This is no cron expression like "*/5 * * * *": {why}.') from None
        return cron


class ZoneField(TextField):
    """The name of a time zone."""

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise serializers.ValidationError('No time zone has this name; one is "Europe/Zurich".') from None
        return name


class Template(Definition):
    """The execution that a trigger starts: whole, also where a trigger is changed, and as it can be stored."""

    inputs = InputsField(required=False, help_text="Inputs of the execution when the evaluation gives none.")

    def run_validation(self, data: object = empty) -> Any:
        if self.parent is None or data is empty:
            return super().run_validation(data)
        return orjson.loads(orjson.dumps(shared_serializer(Template).run_validation(data)))

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        definition = super().validate(definition)
        refuse_oversized_inputs("inputs", count_payload_bytes(definition, definition.get("inputs", {})))
        return definition


MASKED = ("action", "payload", "execution")
"""What of a trigger is shown masked."""


def restore_fields(data: Mapping[str, Any], trigger: Trigger | None) -> dict[str, Any]:
    """What is sent back of a trigger, with what was masked when it was read."""
    return {
        name: restore(value, getattr(trigger, name)) if trigger is not None and name in MASKED else value
        for name, value in data.items()
    }


class TriggerRequest(StrictSerializer):
    name = TextField()
    cron = CronField(required=False, allow_null=True)
    interval_seconds = SecondsField(required=False, allow_null=True, min_value=1)
    timezone = ZoneField(required=False, help_text="Time zone of the cron expression (default: UTC).")
    action = ActionField(help_text='Its output, like {"fire": true, "inputs": {}}, says whether the execution starts.')
    payload = AnyField(required=False)
    tags = TagList(required=False)
    priority = PriorityField(required=False, help_text="Priority of its evaluations; higher first.")
    timeout_seconds = SecondsField(
        required=False, min_value=0.001, help_text="Timeout of each try of an evaluation (default: 5 minutes)."
    )
    max_retries = WholeField(
        required=False,
        min_value=0,
        max_value=1000,
        help_text="How often an evaluation is retried after an error of its code (default: 1).",
    )
    enabled = YesNoField(required=False)
    missed = ChoiceField(
        list(Missed), required=False, help_text="What happens to slots that passed while nobody evaluated the trigger."
    )
    execution = Template()
    note = NoteField(write_only=True)

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(restore_fields(data, self.instance) if isinstance(data, Mapping) else data)

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        cron, interval = (fields.get(name, getattr(self.instance, name, None)) for name in ("cron", "interval_seconds"))
        if (cron is None) == (interval is None):
            detail = ["Either cron or interval_seconds is needed, and not both (null takes one away)."]
            raise serializers.ValidationError({"cron": detail, "interval_seconds": detail})
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
        fields = ("slot", "outcome", "by", "note", "job", "execution")


class TriggerAnswer(ModelAnswer):
    action = MaskedObjectField()
    payload = MaskedField()
    execution = MaskedObjectField()
    slots = SlotAnswer(many=True, source="last_slots", help_text="The latest slots, latest first.")

    class Meta:
        model = Trigger
        fields = (
            "id", "name", "namespace", "cron", "interval_seconds", "timezone", "action", "payload", "tags", "priority",
            "timeout_seconds", "max_retries", "enabled", "missed", "execution", "next_slot_at", "created_at", "slots",
        )  # fmt: skip


class TriggerFilter(PageFilter):
    heavy = ("execution", "payload", "action")


class TriggerPage(serializers.Serializer):
    items = TriggerAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")
