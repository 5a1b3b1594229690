"""Serializers of steps that wait: their actions, and the description of a wait."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.core.bounds import NOTE_LENGTH
from controlplane.core.json_bodies import size_of
from controlplane.core.rest import ChoiceField, NoteField, SecondsField, StrictSerializer, TextField, TimeField
from jobs.answer_fields import find_schema_problem
from jobs.api.serializers.signals import SignalNameField
from jobs.references import DEFAULT, is_reference

ON_TIMEOUT = ("fail", "skip")
"""Effects of a timeout on a step. An approval may also take one of its choices."""
SCHEMA_LIMIT = 16 * 1024
"""Bytes of the schema of an answer."""
REFERENCE_SCHEMA = {
    "type": "object",
    "description": "Reference to a value of the execution.",
    "properties": {"from": {"type": "string"}, "default": {}},
    "required": ["from"],
    "additionalProperties": False,
}


class Referable(serializers.Field):
    """Mixin of a field whose value may be a reference, like `{"from": "$.inputs.day"}`. Its default must be valid."""

    def to_internal_value(self, data: Any) -> Any:
        if not is_reference(data):
            return super().to_internal_value(data)
        return {**data, DEFAULT: self.run_validation(data[DEFAULT])} if DEFAULT in data else data

    def run_validators(self, value: Any) -> None:
        if not is_reference(value):
            super().run_validators(value)


@extend_schema_field({"oneOf": [{"type": "number", "minimum": 0}, REFERENCE_SCHEMA]})
class ReferableSeconds(Referable, SecondsField):
    """Duration in seconds, or a reference to one."""


@extend_schema_field({"oneOf": [{"type": "string", "format": "date-time"}, REFERENCE_SCHEMA]})
class ReferableTime(Referable, TimeField):
    """Time in RFC 3339, or a reference to one."""


@extend_schema_field({"oneOf": [{"type": "string", "minLength": 1, "maxLength": 200}, REFERENCE_SCHEMA]})
class ReferableSignal(Referable, SignalNameField):
    """Name of a signal, or a reference to one."""


class WaitAction(StrictSerializer):
    type = ChoiceField(["wait"])
    seconds = ReferableSeconds(required=False, help_text="It waits for so long from the moment when it could begin.")
    until = ReferableTime(required=False, help_text="It waits until this time. A time in the past ends it at once.")

    signal = ReferableSignal(required=False, help_text="It waits for this signal, whose body becomes its output.")
    since_seconds = SecondsField(
        required=False,
        help_text="A signal counts that was sent up to so long before the step began to wait. Signals since the"
        " execution was created always count.",
    )
    timeout_seconds = SecondsField(
        required=False, min_value=0.001, help_text="It waits at most so long for its signal. Default: no limit."
    )
    on_timeout = ChoiceField(
        ON_TIMEOUT, required=False, help_text="The step is then FAILED (default) or SKIPPED, with STEP_TIMEOUT."
    )

    def validate(self, action: dict[str, Any]) -> dict[str, Any]:
        if len(action.keys() & {"seconds", "until", "signal"}) != 1:
            raise serializers.ValidationError("A wait has exactly one of seconds, until and signal.")
        if "signal" not in action and (wrong := action.keys() & {"since_seconds", "timeout_seconds", "on_timeout"}):
            raise serializers.ValidationError({name: ["Only a wait for a signal has it."] for name in sorted(wrong)})
        refuse_unused_on_timeout(action)
        return action


@extend_schema_field({"oneOf": [{"type": "string", "minLength": 1, "maxLength": NOTE_LENGTH}, REFERENCE_SCHEMA]})
class ReferableText(Referable, TextField):
    """Text for people, or a reference to one."""


class ApprovalAction(StrictSerializer):
    type = ChoiceField(["approval"])
    message = ReferableText(max_length=NOTE_LENGTH, help_text="Question to the people who answer.")
    choices = serializers.ListField(
        child=TextField(max_length=100),
        default=["approve", "reject"],
        allow_empty=False,
        max_length=20,
        help_text="Answers of which one is chosen. `reject` fails the step with REJECTED.",
    )
    fields: Any = serializers.DictField(
        required=False,
        help_text="JSON schema of the object of values that an answer has: `properties` of the types string, number,"
        " integer and boolean, and `required`. Other properties are not allowed.",
    )
    group = TextField(
        required=False, max_length=150, help_text="Group of people who may answer. Tokens of operators always may."
    )
    timeout_seconds = SecondsField(
        required=False, min_value=0.001, help_text="It waits at most so long for an answer. Default: no limit."
    )
    on_timeout = TextField(
        required=False, help_text="`fail` (default) or `skip` the step, with STEP_TIMEOUT, or take one of the choices."
    )

    def validate(self, action: dict[str, Any]) -> dict[str, Any]:
        choices = action["choices"]
        if len(set(choices)) < len(choices) or {*ON_TIMEOUT} & {*choices}:
            raise serializers.ValidationError(
                {"choices": [f"The choices must differ, and none may be {' or '.join(ON_TIMEOUT)}."]}
            )
        if action.get("on_timeout", "fail") not in (*ON_TIMEOUT, *choices):
            known = ", ".join([*ON_TIMEOUT, *choices])
            raise serializers.ValidationError({"on_timeout": [f"It must be one of {known}."]})
        if problem := find_schema_problem(action.get("fields", {})):
            raise serializers.ValidationError({"fields": [problem]})
        if (size := size_of(action.get("fields", {}))) > SCHEMA_LIMIT:
            raise serializers.ValidationError({"fields": [f"It has {size} bytes; the limit is {SCHEMA_LIMIT}."]})
        refuse_unused_on_timeout(action)
        return action


def refuse_unused_on_timeout(action: dict[str, Any]) -> None:
    """Raise ValidationError if an action has `on_timeout` but no timeout."""
    if "on_timeout" in action and "timeout_seconds" not in action:
        raise serializers.ValidationError({"on_timeout": ["Without timeout_seconds there is no timeout."]})


class WaitAnswer(serializers.Serializer):
    """Event that a step waits for."""

    what = ChoiceField(["time", "signal", "answer"], help_text="Kind of event.")
    until = TimeField(allow_null=True, help_text="Time at which the wait ends or times out. Null: it has no limit.")
    signal = serializers.CharField(allow_null=True, help_text="Name of the signal.")
    message = serializers.CharField(allow_null=True, help_text="Question to the people who answer.")
    choices = serializers.ListField(child=serializers.CharField(), allow_null=True, help_text="Possible answers.")
    fields: Any = serializers.DictField(allow_null=True, help_text="JSON schema of the values of an answer.")
    group = serializers.CharField(allow_null=True, help_text="Group of people who may answer. Null: all.")


class AnswerRequest(StrictSerializer):
    """Answer to an approval."""

    choice = TextField(max_length=100)
    values = serializers.DictField(default=dict, help_text="Values of the `fields` of the approval.")
    note = NoteField()
