"""The Idempotency-Key header."""

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from controlplane.agent.clean_text import is_clean

KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.HEADER,
    description="A repeated call with the same key creates no second object. It returns the first one.",
)


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key header, or None. Raise ValidationError if it is invalid."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= 255 and is_clean(key)):
        why = "The key must have 1 to 255 characters and no control characters."
        raise serializers.ValidationError({"Idempotency-Key": [why]})
    return key
