"""Requests and responses of the calls about holds."""

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers

from controlplane.agent.clean_text import is_clean
from controlplane.core.answers import ModelAnswer
from controlplane.core.bounds import TEXT_LENGTH
from controlplane.core.ids import parse_uuid
from controlplane.core.paging import PageFilter
from controlplane.core.rest import AnyField, ChoiceField, NoteField, SecondsField, StrictSerializer
from jobs.choices import HoldMode, HoldOf
from jobs.models import Hold

KINDS = ", ".join(HoldOf)
OF_SCHEMA = {
    "type": "object",
    "description": "What is held: exactly one entry.",
    "properties": {kind.value: {"type": "string", "description": kind.meaning} for kind in HoldOf},
    "minProperties": 1,
    "maxProperties": 1,
}


@extend_schema_field(OF_SCHEMA)
class HeldField(AnyField):
    """Work to hold: an object with one entry, such as `{"tag": "gpu"}`. Read as a kind and a value."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict) or len(data) != 1:
            raise serializers.ValidationError(f'Give an object with exactly one of {KINDS}, like {{"tag": "gpu"}}.')
        [(kind, value)] = data.items()
        if kind not in list(HoldOf):
            raise serializers.ValidationError(f"{kind!r} cannot be held. Give one of {KINDS}.")
        if not isinstance(value, str) or not 0 < len(value) <= TEXT_LENGTH or not is_clean(value):
            raise serializers.ValidationError(
                f"The value of {kind} must be a text of 1 to {TEXT_LENGTH} characters without control characters."
            )
        if kind in (HoldOf.EXECUTION, HoldOf.TRIGGER):
            id = parse_uuid(value)
            if id is None:
                raise serializers.ValidationError(f"The value of {kind} must be its id, not {value!r}.")
            value = str(id)
        return HoldOf(kind), value


class HoldRequest(StrictSerializer):
    of = HeldField(allow_null=False)
    mode = ChoiceField(
        HoldMode.choices(),
        default=HoldMode.PAUSE.value,
        help_text="pause: new submissions are accepted and wait. refuse: they get 409 `on_hold` with the note.",
    )
    duration_seconds = SecondsField(
        required=False, allow_null=True, min_value=0.001, help_text="Seconds after which it ends. Default: it does not."
    )
    note = NoteField()


class HoldAnswer(ModelAnswer):
    of = serializers.SerializerMethodField(help_text="What is held: exactly one entry.")
    mode = ChoiceField(HoldMode.choices())
    parked = serializers.IntegerField(help_text="Number of waiting jobs that it holds now.")

    class Meta:
        model = Hold
        fields = ("id", "of", "namespace", "mode", "note", "by", "created_at", "ends_at", "parked")

    @extend_schema_field(OF_SCHEMA)
    def get_of(self, hold: Hold) -> dict[str, Any]:
        return hold.of


class HoldFilter(PageFilter):
    """Page of holds."""


class HoldPage(serializers.Serializer):
    items = HoldAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


EXAMPLES = [
    OpenApiExample(
        "Pause all jobs with a tag for an hour",
        {"of": {"tag": "gpu"}, "duration_seconds": 3600, "note": "the driver is being updated"},
        request_only=True,
    ),
    OpenApiExample(
        "Refuse new jobs of an action",
        {"of": {"action": "shop.mail:confirm"}, "mode": "refuse", "note": "the mail server is down"},
        request_only=True,
    ),
]
