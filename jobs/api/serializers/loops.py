"""Serializers of loops: steps that run for each item of a list."""

from typing import Any

from rest_framework import serializers

from controlplane.agent.secrets.values import is_secret
from controlplane.core.answers import ModelAnswer
from controlplane.core.rest import StrictSerializer, TextField, WholeField, YesNoField
from jobs.references import is_reference
from jobs.services import drafts, step_data

ITEMS_LIMIT = 1000
ADDED = ("item", "index")
"""Fields that the payload of each item gets."""


class LoopRequest(StrictSerializer):
    """Fields of a step that runs for each item of a list."""

    for_each = TextField(
        required=False,
        max_length=step_data.PATH_LENGTH,
        help_text="SQL/JSON path of a list of at most 1,000 items, like `$.steps.list.output.files`. The step runs once"
        " for each item, and its output is the list of their outputs. `item` and `index` are added to each payload.",
    )
    max_parallel = WholeField(
        required=False, min_value=1, max_value=ITEMS_LIMIT, help_text="Number of items that may run at once."
    )
    fail_fast = YesNoField(
        required=False,
        help_text="False: all items run, even if one fails. Default: true, the other items are cancelled then.",
    )

    def validate(self, step: dict[str, Any]) -> dict[str, Any]:
        step = super().validate(step)
        problems: dict[str, list[str]] = {}
        if not drafts.is_loop(step):
            problems = {
                name: [f"Only a step with for_each has {name}."]
                for name in ("max_parallel", "fail_fast")
                if name in step
            }
        elif "payload" in step and (problem := find_payload_problem(step["payload"])):
            problems = {"payload": [problem]}
        if problems:
            raise serializers.ValidationError(problems)
        return step


def find_payload_problem(payload: Any) -> str | None:
    """Return what is wrong with the payload of a loop, or None."""
    if not isinstance(payload, dict) or is_reference(payload) or is_secret(payload):
        return "The payload of a step with for_each must be an object, because item and index are added to it."
    if taken := [name for name in ADDED if name in payload]:
        return f"The payload of a step with for_each must not have {' and '.join(taken)}: each item gets its own."
    return None


class ItemCounts(serializers.Serializer):
    """Number of items of a loop that have ended."""

    total = serializers.IntegerField(help_text="Number of items.")
    done = serializers.IntegerField(help_text="Number of items that are COMPLETED.")
    failed = serializers.IntegerField(help_text="Number of items that ended otherwise.")


class LoopAnswer(ModelAnswer):
    """Fields of a step in responses that are about its loop."""

    for_each = serializers.CharField(
        source="loop.for_each", allow_null=True, help_text="Path of its list. Null for other executions."
    )
    max_parallel = serializers.IntegerField(
        source="loop.max_parallel", allow_null=True, help_text="Number of items that may run at once. Null: any."
    )
    fail_fast = serializers.BooleanField(
        source="loop.fail_fast", allow_null=True, help_text="True: if an item fails, the others are cancelled."
    )
    progress = ItemCounts(allow_null=True, help_text="Items of its loop. Null before it begins, and if it is no loop.")
