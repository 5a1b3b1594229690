"""Fields of submissions that may have secrets, and of responses that mask them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.agent.runners.policy import takes_references
from controlplane.agent.secrets.step_data import mask_payload
from controlplane.agent.secrets.values import (
    LONGEST,
    MARK,
    NAME,
    REFERENCE,
    find_problem,
    is_secret,
    list_secrets,
    mask,
)
from controlplane.core.rest import AnyField, FreeTextField


def describe_secret(name: str, value: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the schema of a secret for the OpenAPI document."""
    described = {"type": "object", "description": description, "properties": {name: {"type": "string", **value}}}
    return {**described, "required": [name], "additionalProperties": False}


SECRETS = [
    describe_secret(REFERENCE, {"pattern": f"^{NAME.pattern}$"}, "Name of a secret of the worker."),
    describe_secret(MARK, {"minLength": 1, "maxLength": LONGEST}, "Value of the secret. It is never shown."),
]
VARIABLE_LIMIT = 100_000  # characters
NOT_AN_OBJECT = "The value must be an object. Put the secret below a key of it."
NO_REFERENCES = "The payload of a Celery task must not have secrets, because its broker would store them."


@extend_schema_field({"oneOf": [{"type": "string", "maxLength": VARIABLE_LIMIT}, *SECRETS]})
class TextOrSecretField(FreeTextField):
    """Value of a variable: a text or a secret."""

    def to_internal_value(self, data: Any) -> Any:
        if not is_secret(data):
            return super().to_internal_value(data)
        refuse_wrong_secrets(data)
        return data


class EnvironmentField(serializers.DictField):
    """Environment variables of the code."""

    def __init__(self, **options: Any) -> None:
        child = TextOrSecretField(max_length=VARIABLE_LIMIT, allow_blank=True)
        super().__init__(**{"child": child, "required": False, **options})

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        refuse_wrong_secrets(value)
        return value


class InputsField(serializers.DictField):
    """Inputs that steps get as payload."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        refuse_secret_for_object(value)
        refuse_wrong_secrets(value)
        return value


class MaskedField(AnyField):
    """JSON value. Responses mask its secrets."""

    def to_representation(self, value: object) -> Any:
        return mask(value)


class MaskedPayloadField(AnyField):
    """Payload of a job. Responses mask its secrets, and values that come from a hidden path of the execution."""

    def to_representation(self, job: Any) -> Any:
        return mask_payload(job.payload, job.payload_from)


class MaskedObjectField(serializers.DictField):
    """Object. Responses mask its secrets."""

    def to_representation(self, value: object) -> Any:
        return mask(value)


def refuse_wrong_secrets(value: object) -> None:
    """Raise ValidationError if a value has invalid secrets."""
    if problem := find_problem(value):
        raise serializers.ValidationError(problem)


def refuse_secret_for_object(value: object) -> None:
    """Raise ValidationError if a secret stands in place of an object."""
    if is_secret(value):
        raise serializers.ValidationError(NOT_AN_OBJECT)


def refuse_wrong_payload(action: dict[str, Any], payload: object) -> None:
    """Raise ValidationError for `payload` if its secrets are invalid, or if the action may have none."""
    if takes_references(action):
        problem = find_problem(payload)
    else:
        problem = NO_REFERENCES if action.get("type") == "celery" and has_secrets(payload) else None
    if problem:
        raise serializers.ValidationError({"payload": [problem]})


def has_secrets(value: object) -> bool:
    """Return True if a value has valid or invalid secrets."""
    return find_problem(value) is not None or any(True for _ in list_secrets(value))
