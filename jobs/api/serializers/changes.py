"""Request of a change of a waiting job."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import AnyField, NoteField, SecondsField, StrictSerializer, TimeField, WholeField
from jobs.api.serializers.actions import PriorityField
from jobs.api.serializers.limits import LimitsField
from liveness.api.serializers.registration import RequiredTags


class JobChanges(StrictSerializer):
    priority = PriorityField(required=False, help_text="Higher ones are claimed first.")
    available_at = TimeField(
        required=False, allow_null=True, help_text="Time before which it is not claimed. Null or a past time: now."
    )
    tags = RequiredTags(required=False, help_text="Tags that a worker must have, in addition to those of the action.")
    timeout_seconds = SecondsField(required=False, allow_null=True, min_value=0.001)
    max_retries = WholeField(
        required=False, min_value=0, max_value=1000, help_text="Number of retries after an error of its code."
    )
    payload = AnyField(required=False, help_text="Payload of the code.")
    limits = LimitsField(required=False, help_text="Keys whose limits count for it, as at submission. `[]`: none.")

    def validate(self, changes: dict[str, Any]) -> dict[str, Any]:
        if not changes.keys() - {"note"}:
            known = ", ".join(str(name) for name in self.fields if name != "note")
            raise serializers.ValidationError(f"Give at least one field to change: {known}.")
        return changes


class ChangeRequest(JobChanges):
    note = NoteField()
