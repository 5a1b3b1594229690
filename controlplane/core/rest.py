"""Strict serializers and fields of the API. Their errors name the invalid field."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import ISO_8601, serializers
from rest_framework.exceptions import ErrorDetail

from controlplane.agent import clean_text
from controlplane.core import lean_bodies
from controlplane.core.bounds import INT32, LARGEST_NUMBER, LONGEST_WAIT, NOTE_LENGTH, TEXT_LENGTH, clamp_moment
from controlplane.core.json_bodies import size_of


class StrictSerializer(serializers.Serializer):
    """Serializer that refuses unknown fields. The error lists the known fields."""

    def to_internal_value(self, data: object) -> Any:
        if isinstance(data, Mapping):
            unknown = [key for key in data if key not in self.fields]
            if unknown:
                known = ", ".join(self.fields)
                detail = ErrorDetail(f"Unknown field. Known fields are: {known}.", code="unknown")
                raise serializers.ValidationError({str(key): [detail] for key in unknown})
        return super().to_internal_value(data)


def with_defaults(options: Mapping[str, object], **defaults: object) -> dict[str, Any]:
    """Return the options of a field. Missing options get these defaults."""
    return {**defaults, **options}


class ChoiceField(serializers.ChoiceField):
    """One of several words. The error for any other word lists the valid words."""

    def __init__(self, choices: Any, **options: object) -> None:
        super().__init__(choices, **with_defaults(options))
        words = ", ".join(map(str, self.choices))
        self.error_messages["invalid_choice"] = f'"{{input}}" is not a valid choice. Valid choices are: {words}.'


@cache
def shared_serializer(serializer: Callable[[], Any]) -> Any:
    """Return one shared instance per serializer class, because creating an instance takes longer than using it.

    Sharing is safe, because validation leaves no state in the instance.
    """
    return serializer()


def validate_body(serializer: Callable[..., Any], data: object) -> Any:
    """Return the validated values of a body. Raise ValidationError."""
    with suppress(*lean_bodies.REFUSALS):
        return lean_bodies.reader_of(serializer)(data)
    body = serializer(data=data)
    body.is_valid(raise_exception=True)
    return body.validated_data


class FreeTextField(serializers.CharField):
    """Text from a program, kept unchanged with its line breaks. A number is not accepted as text."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, max_length=TEXT_LENGTH, trim_whitespace=False))

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


clean = RegexValidator(clean_text.CLEAN, clean_text.NOT_CLEAN, code="control_characters")
"""Validator of all names and reasons, in the API, in forms and on the command line."""


class TextField(FreeTextField):
    """Text on one line: a name, a tag, a note."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.validators.append(clean)


class NoteField(TextField):
    """Reason for an action by a person, stored with the user and the time."""

    def __init__(self, **options: object) -> None:
        defaults: dict[str, Any] = {"max_length": NOTE_LENGTH, "help_text": "Reason, stored with user and time."}
        if "required" not in options:
            defaults |= {"default": "", "allow_blank": True}
        super().__init__(**{**defaults, **options})


@extend_schema_field(
    {"type": ["object", "array", "string", "number", "boolean"], "items": {}, "description": "Any JSON."}
)
class AnyField(serializers.JSONField):
    """JSON value of any type, including null."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, allow_null=True))


class ObjectField(serializers.DictField):
    """JSON object of at most `max_bytes` bytes, as compact JSON in UTF-8."""

    def __init__(self, *, max_bytes: int, **options: object) -> None:
        super().__init__(**with_defaults(options))
        self.max_bytes = max_bytes

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        if (size := size_of(value)) > self.max_bytes:
            raise serializers.ValidationError(f"This value has {size} bytes as JSON; the limit is {self.max_bytes}.")
        return value


class NumberField(serializers.FloatField):
    """Finite JSON number. Text and true are refused."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, min_value=-LARGEST_NUMBER, max_value=LARGEST_NUMBER))

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool | str) or (isinstance(data, float) and not math.isfinite(data)):
            self.fail("invalid")
        return super().to_internal_value(data)


class TimeField(serializers.DateTimeField):
    """Time in RFC 3339 format. Responses are in UTC."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, format=ISO_8601, input_formats=[ISO_8601], default_timezone=UTC))

    def to_internal_value(self, value: Any) -> datetime:
        """Return the time.

        If it is out of bounds, return the nearest bound, because the year 9999 often means never.
        """
        return clamp_moment(super().to_internal_value(value))

    def to_representation(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is UTC:
            return f"{value.isoformat().removesuffix('+00:00')}Z"
        return super().to_representation(value)


class SecondsField(NumberField):
    """Duration in seconds."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, min_value=0, max_value=LONGEST_WAIT))


class IdField(serializers.UUIDField):
    """UUID as text."""

    def to_internal_value(self, data: object) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class YesNoField(serializers.BooleanField):
    """Boolean. Only true and false are accepted."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class WholeField(serializers.IntegerField):
    """Whole number that fits a PostgreSQL integer. Text, true and 1.5 are refused."""

    def __init__(self, **options: object) -> None:
        super().__init__(**with_defaults(options, min_value=INT32[0], max_value=INT32[1]))

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


def json_object_reader(field: Any) -> lean_bodies.Reader:
    def read(value: object) -> Any:
        if type(value) is not dict or size_of(value) > field.max_bytes:
            raise lean_bodies.NotPlain
        return value

    return lean_bodies.validated(read, lean_bodies.validators_of(field))


lean_bodies.BUILDERS |= {
    ChoiceField.to_internal_value: lean_bodies.choice_reader,
    FreeTextField.to_internal_value: lean_bodies.text_reader,
    IdField.to_internal_value: lean_bodies.id_reader,
    NumberField.to_internal_value: lean_bodies.number_reader,
    ObjectField.to_internal_value: json_object_reader,
    StrictSerializer.to_internal_value: lean_bodies.object_reader,
    WholeField.to_internal_value: lean_bodies.whole_reader,
}
