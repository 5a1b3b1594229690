"""Where a submission may have secrets, and how answers show it; the rules: controlplane/agent/secret_values.py."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.agent.policy import takes_references
from controlplane.agent.secret_values import LONGEST, MARK, NAME, REFERENCE, find_problem, is_secret, list_secrets, mask
from controlplane.core.rest import AnyField, FreeTextField


def describe_secret(name: str, value: dict[str, Any], description: str) -> dict[str, Any]:
    """For the OpenAPI document."""
    described = {"type": "object", "description": description, "properties": {name: {"type": "string", **value}}}
    return {**described, "required": [name], "additionalProperties": False}


SECRETS = [
    describe_secret(REFERENCE, {"pattern": f"^{NAME.pattern}$"}, "What its worker has under this name."),
    describe_secret(MARK, {"minLength": 1, "maxLength": LONGEST}, "The value itself, which is not shown."),
]
VARIABLE_LIMIT = 100_000  # characters
NOT_AN_OBJECT = "This is an object: a secret stands below a name in it."
NO_REFERENCES = "The message of a Celery task goes through its broker, which would keep a secret: its payload has none."


@extend_schema_field({"oneOf": [{"type": "string", "maxLength": VARIABLE_LIMIT}, *SECRETS]})
class TextOrSecretField(FreeTextField):
    """The value of a variable."""

    def to_internal_value(self, data: object) -> Any:
        if not is_secret(data):
            return super().to_internal_value(data)
        refuse_wrong_secrets(data)
        return data


class EnvironmentField(serializers.DictField):
    """Variables of the code."""

    def __init__(self, **options: Any) -> None:
        child = TextOrSecretField(max_length=VARIABLE_LIMIT, allow_blank=True)
        super().__init__(**{"child": child, "required": False, **options})

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        refuse_wrong_secrets(value)
        return value


class InputsField(serializers.DictField):
    """What is handed to steps."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        refuse_secret_for_object(value)
        refuse_wrong_secrets(value)
        return value


class MaskedField(AnyField):
    """Any JSON, as it is shown."""

    def to_representation(self, value: Any) -> Any:
        return mask(value)


class MaskedObjectField(serializers.DictField):
    """An object, as it is shown."""

    def to_representation(self, value: Any) -> Any:
        return mask(value)


def refuse_wrong_secrets(value: Any) -> None:
    """Raises ValidationError with a sentence."""
    if problem := find_problem(value):
        raise serializers.ValidationError(problem)


def refuse_secret_for_object(value: Any) -> None:
    """Raises ValidationError for what must be an object, and stands for a text."""
    if is_secret(value):
        raise serializers.ValidationError(NOT_AN_OBJECT)


def refuse_wrong_payload(action: dict[str, Any], payload: Any) -> None:
    """Raises ValidationError, which says where."""
    if takes_references(action):
        problem = find_problem(payload)
    else:
        problem = NO_REFERENCES if action["type"] == "celery" and has_secrets(payload) else None
    if problem:
        raise serializers.ValidationError({"payload": [problem]})


def has_secrets(value: Any) -> bool:
    """Whether it has secrets, or what is none and looks like one."""
    return find_problem(value) is not None or any(True for _ in list_secrets(value))
