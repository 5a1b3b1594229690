"""Request and response of the call that sends a signal."""

from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.rest import StrictSerializer, TextField
from jobs.models import Signal

RESERVED = "ended:"
"""Prefix of the names of signals that only the control plane sends."""


class SignalNameField(TextField):
    """Name of a signal."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{"max_length": 200, **options})

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if "/" in name:
            raise serializers.ValidationError("The name of a signal has no slash; use a name like paid:42.")
        return name


class SignalRequest(StrictSerializer):
    """Signal to send. The body is sent apart, because it may be any JSON."""

    name = SignalNameField()

    def validate_name(self, name: str) -> str:
        if name.startswith(RESERVED):
            raise serializers.ValidationError(f"Only the control plane sends signals that begin with {RESERVED}.")
        return name


class SignalAnswer(ModelAnswer):
    class Meta:
        model = Signal
        fields = ("id", "name", "created_at")
