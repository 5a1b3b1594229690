"""How the API judges what it is sent: strictly, and with errors that say where."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import ISO_8601, serializers
from rest_framework.exceptions import ErrorDetail

from controlplane.agent import clean_text
from controlplane.core import lean_bodies
from controlplane.core.durations import LONGEST_WAIT
from controlplane.core.json_bodies import size_of


class StrictSerializer(serializers.Serializer):
    """A serializer that refuses fields it does not know, and names those it does."""

    def to_internal_value(self, data: object) -> Any:
        if isinstance(data, Mapping):
            unknown = [key for key in data if key not in self.fields]
            if unknown:
                known = ", ".join(self.fields)
                detail = ErrorDetail(f"Unknown field. Known are: {known}.", code="unknown")
                raise serializers.ValidationError({str(key): [detail] for key in unknown})
        if type(data) is not dict or getattr(self.root, "partial", False):
            return super().to_internal_value(data)
        return self.validate_fields(data)

    def validate_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        """What the framework does, without asking fields that are not there and need not be: most of a job's."""
        values: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for name, (field, is_optional, check) in self.checks.items():
            if is_optional and name not in data:
                continue
            try:
                value = field.run_validation(data.get(name, serializers.empty))
                values[name] = value if check is None else check(value)
            except serializers.ValidationError as error:
                errors[name] = error.detail
        if errors:
            raise serializers.ValidationError(errors)
        return values

    @cached_property
    def checks(self) -> "dict[str, tuple[serializers.Field[Any, Any, Any, Any], bool, Callable[[Any], Any] | None]]":
        """Each field, whether it may be left out and is nothing then, and the method that checks it further."""
        return {
            name: (
                field,
                not field.required and field.default is serializers.empty,
                getattr(self, f"validate_{name}", None),
            )
            for name, field in self.fields.items()
        }


class ChoiceField(serializers.ChoiceField):
    """One of several words; whoever says another is told which there are."""

    def __init__(self, choices: Any, **options: Any) -> None:
        super().__init__(choices, **options)
        words = ", ".join(map(str, self.choices))
        self.error_messages["invalid_choice"] = f'"{{input}}" is not a valid choice. Valid are: {words}.'


@cache
def shared_serializer(serializer: Callable[[], Any]) -> Any:
    """One of each is enough, for validation leaves nothing in it; making one takes longer than using it."""
    return serializer()


def validate_body(serializer: Callable[..., Any], data: object) -> Any:
    """What a body says. Raises ValidationError."""
    with suppress(*lean_bodies.REFUSALS):
        return lean_bodies.reader_of(serializer)(data)
    body = serializer(data=data)
    body.is_valid(raise_exception=True)
    return body.validated_data


class FreeTextField(serializers.CharField):
    """A text of a program, taken as it is, line breaks and all: a number is not a text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 255, "trim_whitespace": False, **options})

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


clean = RegexValidator(clean_text.CLEAN, clean_text.NOT_CLEAN, code="control_characters")
"""Of every text that names something or says why, in the API, in forms and on the command line."""


class TextField(FreeTextField):
    """A text on one line: a name, a tag, a note."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.validators.append(clean)


NOTE_LENGTH = 1000


class NoteField(TextField):
    """Why somebody does it by hand; kept with who and when."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"max_length": NOTE_LENGTH, "help_text": "Why; kept with who and when."}
        if "required" not in options:
            defaults |= {"default": "", "allow_blank": True}
        super().__init__(**{**defaults, **options})


@extend_schema_field({"type": ["object", "array", "string", "number", "boolean"], "description": "Any JSON."})
class AnyField(serializers.JSONField):
    """Whatever JSON it is, null too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, **options})


class ObjectField(serializers.DictField):
    """A JSON object of at most so many bytes as compact JSON in UTF-8."""

    def __init__(self, *, max_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self.max_bytes = max_bytes

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        if (size := size_of(value)) > self.max_bytes:
            raise serializers.ValidationError(f"It has {size} bytes of JSON; the limit is {self.max_bytes}.")
        return value


class NumberField(serializers.FloatField):
    """A JSON number, finite: neither text nor true."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool | str) or (isinstance(data, float) and not math.isfinite(data)):
            self.fail("invalid")
        return super().to_internal_value(data)


class TimeField(serializers.DateTimeField):
    """A moment, RFC 3339; as it is written, in UTC."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"format": ISO_8601, "input_formats": [ISO_8601], "default_timezone": UTC, **options})

    def to_representation(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is UTC:
            return f"{value.isoformat().removesuffix('+00:00')}Z"
        return super().to_representation(value)


class SecondsField(NumberField):
    """A duration in seconds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": LONGEST_WAIT, **options})


class IdField(serializers.UUIDField):
    """A UUID as a text."""

    def to_internal_value(self, data: object) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class YesNoField(serializers.BooleanField):
    """true or false, nothing that merely looks like it."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class WholeField(serializers.IntegerField):
    """A whole number that fits a PostgreSQL integer: neither text, nor true, nor 1.5."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": -(2**31), "max_value": 2**31 - 1, **options})

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


lean_bodies.BUILDERS |= {
    ChoiceField.to_internal_value: lean_bodies.choice_reader,
    FreeTextField.to_internal_value: lean_bodies.text_reader,
    IdField.to_internal_value: lean_bodies.id_reader,
    NumberField.to_internal_value: lean_bodies.number_reader,
    StrictSerializer.to_internal_value: lean_bodies.object_reader,
    WholeField.to_internal_value: lean_bodies.whole_reader,
    YesNoField.to_internal_value: lean_bodies.flag_reader,
}
