"""What a job may ask to be run."""

from collections.abc import Mapping
from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.core.lean_bodies import BUILDERS, NotPlain, Reader, reader_of
from controlplane.core.rest import (
    AnyField,
    ChoiceField,
    FreeTextField,
    StrictSerializer,
    TextField,
    WholeField,
    shared_serializer,
)
from jobs.api.serializers.secrets import EnvironmentField

TEXT_OR_LIST = "A text, run by /bin/sh, or a list of texts, run as they are."


class PriorityField(WholeField):
    """Higher first; nobody gets further before the others than this."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": -1000, "max_value": 1000, **options})


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
class CommandField(serializers.Field):
    """The command of a script."""

    def to_internal_value(self, data: object) -> Any:
        if isinstance(data, str) and data:
            return data
        if isinstance(data, list) and data and all(isinstance(part, str) for part in data):
            return data
        raise serializers.ValidationError(TEXT_OR_LIST)

    def to_representation(self, value: object) -> Any:
        return value


class ImageField(TextField):
    """The name of a container's image."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators.append(RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9_.\-/:@]*\Z", "This is no name of an image."))


class ResourcesField(StrictSerializer):
    """What a container may have at most."""

    cpus = serializers.FloatField(required=False, min_value=0.001, max_value=10_000)
    memory = serializers.RegexField(
        r"\A[1-9][0-9]{0,9}[KMGT]\Z", required=False, error_messages={"invalid": "Write it as 512M or 2G."}
    )
    gpus = WholeField(required=False, min_value=1, max_value=1000)


class ScriptAction(StrictSerializer):
    type = ChoiceField(["script"])
    runner = ChoiceField(["local", "docker", "pod"], default="local")
    command = CommandField(help_text=TEXT_OR_LIST)
    env = EnvironmentField()
    cwd = FreeTextField(required=False, max_length=4096)
    image = ImageField(required=False, help_text="Of the container that the runners docker and pod start.")
    resources = ResourcesField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["runner"] == "local" and "resources" in attrs:
            raise serializers.ValidationError({"resources": ["Only a container has resources of its own."]})
        if attrs["runner"] != "local" and "image" not in attrs:
            raise serializers.ValidationError({"image": [f"The runner {attrs['runner']} needs one."]})
        return attrs


class CallableAction(StrictSerializer):
    type = ChoiceField(["callable"])
    path = serializers.RegexField(
        r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$",
        max_length=500,
        error_messages={"invalid": 'Write "package.module:function".'},
    )


class HandlerAction(StrictSerializer):
    type = ChoiceField(["handler"])
    name = TextField(max_length=92, help_text="A handler that workers registered: they have the tag `handler:NAME`.")


class CeleryAction(StrictSerializer):
    type = ChoiceField(["celery"])
    task = TextField(help_text="The name under which its application knows it.")
    args = serializers.ListField(
        child=AnyField(), required=False, error_messages={"not_a_list": 'Write a list, like [1, "two"].'}
    )
    kwargs = serializers.DictField(
        child=AnyField(), required=False, error_messages={"not_a_dict": 'Write an object, like {{"amount": 1}}.'}
    )
    queue = TextField(
        max_length=94, default="celery", help_text="Of those that its worker consumes; `queue:NAME` is a tag of it."
    )


class ContainerAction(StrictSerializer):
    type = ChoiceField(["docker", "pod"])
    image = ImageField()
    command = CommandField(required=False, help_text=TEXT_OR_LIST)
    env = EnvironmentField()
    cwd = FreeTextField(required=False, max_length=4096)
    resources = ResourcesField(required=False)


ACTIONS: dict[str, type[StrictSerializer]] = {
    "script": ScriptAction,
    "callable": CallableAction,
    "handler": HandlerAction,
    "celery": CeleryAction,
    "docker": ContainerAction,
    "pod": ContainerAction,
}


@extend_schema_field(
    PolymorphicProxySerializer(
        component_name="Action",
        serializers={
            "script": ScriptAction,
            "callable": CallableAction,
            "handler": HandlerAction,
            "celery": CeleryAction,
            "docker": ContainerAction,
            "pod": ContainerAction,
        },
        resource_type_field_name="type",
    )
)
class ActionField(serializers.DictField):
    """What is to be run: an object whose `type` says which other fields it has."""

    def known_actions(self) -> dict[str, type[StrictSerializer]]:
        return ACTIONS

    def to_internal_value(self, data: object) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError('An action is an object, like {"type": "script", "command": "date"}.')
        actions = self.known_actions()
        kind = data.get("type")
        if not isinstance(kind, str) or kind not in actions:
            raise serializers.ValidationError({"type": [f"Must be one of {', '.join(actions)}."]})
        return dict(shared_serializer(actions[kind]).run_validation(data))


def action_reader(field: ActionField) -> Reader:
    def read(data: Any) -> Any:
        kind = data.get("type") if type(data) is dict else None
        if type(kind) is not str or (action := field.known_actions().get(kind)) is None:
            raise NotPlain
        return reader_of(action)(data)

    return read


BUILDERS[ActionField.to_internal_value] = action_reader
