"""Requests about executions as a whole, which may be open: more steps are added later."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import StrictSerializer, TextField, YesNoField
from jobs import graph
from jobs.api.serializers.executions import Definition, StepRequest, refuse_oversized_inputs
from jobs.api.serializers.secrets import InputsField
from jobs.services import execution_rows


class ExecutionRequest(Definition):
    steps = StepRequest(many=True, required=False)
    inputs = InputsField(required=False, help_text="Payload of all steps that have none.")
    sealed = YesNoField(
        required=False,
        help_text="False: it is open. Steps can be added, and it does not end before it is sealed. It may begin without"
        " steps.",
    )
    require_worker = YesNoField(
        required=False, help_text="True: refuse it (503) if no worker may run one of its steps now."
    )
    key = TextField(required=False, help_text="Idempotency key: the same key again returns the same execution.")

    def validate(self, definition: dict[str, Any]) -> dict[str, Any]:
        if not definition.get("steps") and definition.get("sealed", True):
            raise serializers.ValidationError(
                {"steps": ["An execution needs at least one step, unless `sealed` is false."]}
            )
        definition = super().validate({"steps": [], **definition})
        refuse_oversized_inputs("inputs", execution_rows.count_payload_bytes(definition, definition.get("inputs", {})))
        return definition


class AddedStepsRequest(StrictSerializer):
    """Steps to add to an open execution."""

    steps = StepRequest(many=True, allow_empty=False)

    def validate_steps(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if repeated := graph.repeated_keys([step["key"] for step in steps]):
            raise serializers.ValidationError(f"Several steps have the same key: {graph.join_words(repeated)}.")
        return steps
