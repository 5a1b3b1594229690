"""Request and response bodies of operator actions."""

from typing import Any

from rest_framework import serializers

from controlplane.core.rest import NoteField, SecondsField, StrictSerializer, TextField, TimeField


class ActionRequest(StrictSerializer):
    """Request body of an action. The event of the action stores the note."""

    note = NoteField(required=True)


class CordonRequest(ActionRequest):
    duration_seconds = SecondsField(
        required=False, help_text="Seconds after which the server gets work again. Default: until an operator ends it."
    )


class DrainRequest(CordonRequest):
    deadline_seconds = SecondsField(
        required=False, help_text="Seconds to finish its attempts. Default: the grace period of the server."
    )


class MaintenanceRequest(ActionRequest):
    cluster = TextField(required=False, help_text="Only this cluster. Default: the whole control plane.")


class EnterRequest(MaintenanceRequest):
    duration_seconds = SecondsField(
        required=False, help_text="Seconds after which maintenance ends. Default: until an operator ends it."
    )


class ReleaseRequest(StrictSerializer):
    """Request body of a brake release. `reason` and `note` are two names of the same field."""

    reason = NoteField(required=False)
    note = NoteField(required=False)
    cluster = TextField(required=False, help_text="Only brakes of this cluster. Default: all brakes.")
    namespace = TextField(
        required=False, max_length=90, help_text="Only brakes of this namespace. Default: all namespaces."
    )

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields.keys() & {"reason", "note"}:
            raise serializers.ValidationError({"reason": ["This field is required."]})
        scope = {name: fields.get(name) for name in ("cluster", "namespace")}
        return {"reason": fields.get("reason") or fields["note"], **scope}


class ReleaseAnswer(serializers.Serializer[Any]):
    released = serializers.ListField(
        child=serializers.CharField(), help_text="Server types whose brakes were released."
    )


class Maintenance(serializers.Serializer[Any]):
    cluster = serializers.CharField(allow_null=True, help_text="Null: the whole control plane.")
    since = TimeField()
    until = TimeField(
        allow_null=True, help_text="The first liveness check after this time ends it. Null: an operator ends it."
    )
    by = serializers.CharField()
    note = serializers.CharField()


class MaintenanceAnswer(serializers.Serializer[Any]):
    maintenance = Maintenance(allow_null=True)
