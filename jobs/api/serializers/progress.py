"""Progress of executions in responses."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.core.rest import with_defaults
from jobs.selectors.executions import measure_progress


class ProgressAnswer(serializers.Serializer):
    total = serializers.IntegerField(help_text="Number of its steps so far, without hooks.")
    done = serializers.IntegerField(help_text="Number of steps that have ended in any state.")
    failed = serializers.IntegerField(help_text="Number of steps that are FAILED or EXPIRED.")


@extend_schema_field(ProgressAnswer)
class ProgressField(serializers.Field):
    """Progress of an execution of `visible_executions()`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**with_defaults(options, source="*", read_only=True))

    def to_representation(self, value: Any) -> dict[str, int]:
        return measure_progress(value)._asdict()
