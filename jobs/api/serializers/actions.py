"""Serializers of actions: what a job runs."""

from collections.abc import Mapping
from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from controlplane.agent.runners.container_environment import NEEDS_SHELL, fits_line
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
from jobs.api.serializers.arguments import refuse_unstartable
from jobs.api.serializers.secrets import EnvironmentField

TEXT_OR_LIST = "A text that /bin/sh runs, or a list of a program and its arguments."


class PriorityField(WholeField):
    """Priority of a job. Higher priorities are claimed first.

    The range is limited, so that jobs cannot outbid each other.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": -1000, "max_value": 1000, **options})


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
class CommandField(serializers.Field):
    """Command of a script."""

    def to_internal_value(self, data: object) -> Any:
        if isinstance(data, str) and data:
            return data
        if isinstance(data, list) and data and all(isinstance(part, str) for part in data):
            return data
        raise serializers.ValidationError(TEXT_OR_LIST)

    def to_representation(self, value: object) -> Any:
        return value


class ImageField(TextField):
    """Name of a container image."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators.append(
            RegexValidator(r"\A[A-Za-z0-9][A-Za-z0-9_.\-/:@]*\Z", "This is not the name of an image.")
        )


class ResourcesField(StrictSerializer):
    """Resource limits of a container."""

    cpus = serializers.FloatField(required=False, min_value=0.001, max_value=10_000)
    memory = serializers.RegexField(
        r"\A[1-9][0-9]{0,9}[KMGT]\Z", required=False, error_messages={"invalid": "Use a size like 512M or 2G."}
    )
    gpus = WholeField(required=False, min_value=1, max_value=1000)


class ScriptAction(StrictSerializer):
    type = ChoiceField(["script"])
    runner = ChoiceField(["local", "docker", "pod"], default="local")
    command = CommandField(help_text=TEXT_OR_LIST)
    env = EnvironmentField()
    cwd = FreeTextField(required=False, max_length=4096)
    image = ImageField(required=False, help_text="Image of the container. Only for the runners docker and pod.")
    resources = ResourcesField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["runner"] == "local" and "resources" in attrs:
            raise serializers.ValidationError({"resources": ["Only the runners docker and pod have resources."]})
        if attrs["runner"] != "local" and "image" not in attrs:
            raise serializers.ValidationError({"image": [f"The runner {attrs['runner']} needs an image."]})
        refuse_unstartable(attrs)
        return attrs


class CallableAction(StrictSerializer):
    type = ChoiceField(["callable"])
    path = serializers.RegexField(
        r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$",
        max_length=500,
        error_messages={"invalid": 'Use a path like "package.module:function".'},
    )


class HandlerAction(StrictSerializer):
    type = ChoiceField(["handler"])
    name = TextField(max_length=92, help_text="Handler that workers have registered. They have the tag `handler:NAME`.")


class CeleryAction(StrictSerializer):
    type = ChoiceField(["celery"])
    task = TextField(help_text="Name of the task in its application.")
    args = serializers.ListField(
        child=AnyField(), required=False, error_messages={"not_a_list": 'Use a list, like [1, "two"].'}
    )
    kwargs = serializers.DictField(
        child=AnyField(), required=False, error_messages={"not_a_dict": 'Use an object, like {{"amount": 1}}.'}
    )
    queue = TextField(
        max_length=94,
        default="celery",
        help_text="Queue that its worker consumes. The worker has the tag `queue:NAME`.",
    )


class ContainerAction(StrictSerializer):
    type = ChoiceField(["docker", "pod"])
    image = ImageField()
    command = CommandField(required=False, help_text=TEXT_OR_LIST)
    env = EnvironmentField()
    cwd = FreeTextField(required=False, max_length=4096)
    resources = ResourcesField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["type"] == "docker" and not isinstance(attrs.get("command"), str):
            for name, value in attrs.get("env", {}).items():
                if isinstance(value, str) and not fits_line(name, value):
                    raise serializers.ValidationError({"env": {name: [NEEDS_SHELL.format(name=name)]}})
        refuse_unstartable(attrs)
        return attrs


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
    """Action of a job: an object whose other fields depend on its `type`."""

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
