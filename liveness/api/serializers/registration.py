"""Request and response of a registration."""

from typing import Any

from rest_framework import serializers

from controlplane.core.bounds import TAGS_BYTES
from controlplane.core.lean_bodies import BUILDERS, Reader, list_reader
from controlplane.core.rest import (
    ChoiceField,
    IdField,
    ObjectField,
    SecondsField,
    StrictSerializer,
    TextField,
    WholeField,
    validate_body,
)
from liveness.conf import conf, timeout_problems, witness_window
from liveness.services.registration import Registration
from liveness.states import RestartStrategy, ServerType

CAPABILITIES_SIZE_LIMIT = 16 * 1024


def describe_config(server: Any) -> dict[str, Any]:
    """Return the config of a server with the API's field names."""
    return {
        "heartbeat_interval_seconds": server.heartbeat_interval,
        "timeout_seconds": server.timeout,
        "termination_grace_period_seconds": server.termination_grace_period,
        "worker_task_restart_strategy": server.worker_task_restart_strategy,
    }


class Config(StrictSerializer):
    """Config of a server. Missing fields have the values of the LIVENESS settings."""

    heartbeat_interval_seconds = SecondsField(required=False, min_value=0.01)
    timeout_seconds = SecondsField(required=False)
    termination_grace_period_seconds = SecondsField(required=False)
    worker_task_restart_strategy = ChoiceField(RestartStrategy.choices(), required=False)

    def validate(self, config: dict[str, Any]) -> dict[str, Any]:
        problems = timeout_problems(
            timeout=config.get("timeout_seconds", conf().timeout),
            heartbeat_interval=config.get("heartbeat_interval_seconds", conf().heartbeat_interval),
            interval=conf().interval,
            window=witness_window(),
        )
        if problems:
            raise serializers.ValidationError({"timeout_seconds": problems})
        return config


class TagList(serializers.ListField):
    """List of tags, sorted and without duplicates."""

    child = TextField(max_length=100)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 200, **options})

    def to_internal_value(self, data: Any) -> list[str]:
        return sorted(set(super().to_internal_value(data)))


class RequiredTags(TagList):
    """Tags that a worker must have to run a job. They are stored in an index, so their size is limited."""

    def to_internal_value(self, data: Any) -> list[str]:
        return bounded(super().to_internal_value(data))


def bounded(tags: list[str]) -> list[str]:
    """Return the tags. Raise ValidationError if they are too large for an index."""
    if len(tags) > 16 and (size := sum(len(tag.encode()) + 8 for tag in tags)) > TAGS_BYTES:
        raise serializers.ValidationError(
            f"The tags have {size} bytes, including 8 for each tag, but may have at most {TAGS_BYTES}. Use fewer or "
            "shorter tags."
        )
    return tags


def tags_reader(field: TagList) -> Reader:
    read = list_reader(field)
    return lambda data: sorted(set(read(data)))


def required_tags_reader(field: RequiredTags) -> Reader:
    read = tags_reader(field)
    return lambda data: bounded(read(data))


BUILDERS[TagList.to_internal_value] = tags_reader
BUILDERS[RequiredTags.to_internal_value] = required_tags_reader


class RegistrationRequest(StrictSerializer):
    type = ChoiceField(ServerType.choices())
    name = TextField()
    instance_id = IdField(help_text="Chosen by the process. A retry with the same id finds the same server.")
    cluster = TextField(default="default")
    hostname = TextField(default="", allow_blank=True)
    pid = WholeField(required=False, allow_null=True, min_value=0)
    version = TextField(default="", allow_blank=True)
    tags = TagList(required=False)
    given_tags = TagList(
        required=False, help_text="Those of `tags` that were given by hand. An operator can change them. Default: all."
    )
    max_concurrent = WholeField(default=1, min_value=0, max_value=100_000)
    capabilities = ObjectField(max_bytes=CAPABILITIES_SIZE_LIMIT, required=False)
    config = Config(required=False)


def to_registration(data: object) -> Registration:
    """Return the registration of a `RegistrationRequest` body. Raise ValidationError."""
    fields = dict(validate_body(RegistrationRequest, data))
    config = fields.pop("config", {})
    return Registration(**fields, **{key.removesuffix("_seconds"): value for key, value in config.items()})


class RegistrationAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    token = serializers.CharField(help_text="Server token, valid only for calls about this server.")
    state = serializers.CharField()
    fence_after_seconds = serializers.FloatField(allow_null=True)
    config = serializers.DictField()
