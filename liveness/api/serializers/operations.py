"""What the calls of operators take and answer."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import NoteField, SecondsField, StrictSerializer, TextField, TimeField


class ActionRequest(StrictSerializer):
    """Why an operator does it; kept with who and when."""

    note = NoteField(required=True)


class CordonRequest(ActionRequest):
    duration_seconds = SecondsField(
        required=False, help_text="Then it gets work again by itself; by default somebody ends it."
    )


class DrainRequest(CordonRequest):
    deadline_seconds = SecondsField(required=False, help_text="To finish what it holds; its grace period by default.")


class MaintenanceRequest(ActionRequest):
    cluster = TextField(required=False, help_text="Of this cluster alone; of the whole control plane by default.")


class EnterRequest(MaintenanceRequest):
    duration_seconds = SecondsField(required=False, help_text="Then it ends by itself; by default somebody ends it.")


class ReleaseRequest(StrictSerializer):
    """Why an operator does it, in either word."""

    reason = NoteField(required=False)
    note = NoteField(required=False)
    cluster = TextField(required=False, help_text="Of this cluster alone; by default whatever it holds.")

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields.keys() & {"reason", "note"}:
            raise serializers.ValidationError({"reason": ["This field is required."]})
        return {"reason": fields.get("reason") or fields["note"], "cluster": fields.get("cluster")}


class ReleaseAnswer(serializers.Serializer):
    released = serializers.ListField(child=serializers.CharField(), help_text="Types of server.")


class Maintenance(serializers.Serializer):
    cluster = serializers.CharField(allow_null=True, help_text="Null: the whole control plane is in maintenance.")
    since = TimeField()
    until = TimeField(allow_null=True, help_text="The first liveness check after this ends it. Null: somebody does.")
    by = serializers.CharField()
    note = serializers.CharField()


class MaintenanceAnswer(serializers.Serializer):
    maintenance = Maintenance(allow_null=True)
