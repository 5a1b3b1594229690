"""Fields of deadlines, which jobs and executions have."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import ChoiceField, SecondsField, StrictSerializer, with_defaults
from jobs.choices import OnDeadline
from jobs.selectors.executions import is_past_deadline
from jobs.states import Flag

DEADLINE_FIELDS = ("deadline_seconds", "on_deadline", "deadline_at")
"""Fields of responses."""


class WithDeadline(StrictSerializer):
    """Fields of a submission about its deadline."""

    deadline_seconds = SecondsField(
        required=False, allow_null=True, min_value=0.001,
        help_text="Seconds after its submission in which it should end. Null: it has no deadline.",
    )  # fmt: skip
    on_deadline = ChoiceField(
        OnDeadline.choices(),
        required=False,
        help_text="Handling if it has not ended at its deadline: it gets the flag `deadline_missed` (default), or it is"
        " also cancelled.",
    )

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if "on_deadline" in fields and fields.get("deadline_seconds") is None:
            raise serializers.ValidationError({"on_deadline": ["Without deadline_seconds there is no deadline."]})
        return fields


class LateFlag(serializers.ListField):
    """Flags of an execution of `visible_executions()`."""

    def __init__(self, **options: Any) -> None:
        text = "`deadline_missed`: it has not ended at its deadline."
        child = ChoiceField(Flag.choices())
        super().__init__(**with_defaults(options, source="*", read_only=True, child=child, help_text=text))

    def to_representation(self, data: Any) -> list[str]:
        return [Flag.DEADLINE_MISSED.value] if is_past_deadline(data) else []
