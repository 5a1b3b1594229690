"""How the API reads and writes JSON: strictly, and with errors that say where."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import IO, Any
from uuid import UUID

import orjson
from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_field
from rest_framework import ISO_8601, serializers
from rest_framework.exceptions import APIException, ErrorDetail, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.utils.encoders import JSONEncoder

from controlplane.agent import clean_text
from controlplane.agent.limits import BODY_DEPTH_LIMIT, BODY_LIMIT
from controlplane.core import lean_bodies
from controlplane.core.durations import LONGEST_WAIT


class TooLarge(APIException):
    status_code = 413
    default_detail = f"The body is larger than {BODY_LIMIT} bytes."
    default_code = "too_large"


class JSONParser(BaseParser):
    """UTF-8 JSON of at most 1 MiB, without NUL characters and lone surrogates: PostgreSQL stores neither."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, context: Mapping[str, Any] | None = None) -> Any:
        body = stream.read(BODY_LIMIT + 1)
        if len(body) > BODY_LIMIT:
            raise TooLarge
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not JSON: {error}") from None
        if body.count(b"[") + body.count(b"{") > BODY_DEPTH_LIMIT:
            refuse_deep(data)
        if b"\\u0000" in body:
            refuse_nul(data)
        return data


def refuse_unstorable(data: object) -> None:
    """Raises ParseError for NUL characters and for what is nested too deeply to be read again."""
    refuse_deep(data)
    refuse_nul(data)


def refuse_deep(data: object) -> None:
    """Raises ParseError for what is nested too deeply to be read again."""
    level = [data]
    for _ in range(BODY_DEPTH_LIMIT + 1):
        level = [
            item
            for part in level
            if type(part) is dict or type(part) is list
            for item in (part.values() if type(part) is dict else part)
        ]
        if not level:
            return
    raise ParseError(f"The body is nested more than {BODY_DEPTH_LIMIT} levels deep.")


def refuse_nul(data: object) -> None:
    """Raises ParseError for NUL characters."""
    if isinstance(data, str) and "\0" in data:
        raise ParseError("A text holds the NUL character (\\u0000), which cannot be stored.")
    if isinstance(data, dict | list):
        for item in [*data, *data.values()] if isinstance(data, dict) else data:
            refuse_nul(item)


class JSONRenderer(BaseRenderer):
    """UTF-8 JSON; times RFC 3339 in UTC."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        if data is None:
            return b""
        try:
            return orjson.dumps(data, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS, default=str)
        except TypeError:  # a whole number beyond 64 bits, which PostgreSQL keeps as it is
            return json.dumps(data, cls=JSONEncoder).encode()


class JSONLinesRenderer(JSONRenderer):
    """The items, one in each line; the `Link` header says where they go on. A problem stays one document."""

    media_type = "application/x-ndjson"
    format = "ndjson"

    def render(self, data: object, accepted_media_type: str | None = None, context: object = None) -> bytes:
        items = data["items"] if isinstance(data, Mapping) and "items" in data else [data]
        return b"".join(super(JSONLinesRenderer, self).render(item) + b"\n" for item in items)


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
    try:
        return shared_serializer(serializer).run_validation(data)
    except serializers.ValidationError:
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


def size_of(data: object) -> int:
    """Bytes of compact JSON in UTF-8."""
    try:
        return len(orjson.dumps(data))
    except TypeError:  # a whole number beyond 64 bits
        return len(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())


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
            return f"{value.replace(tzinfo=None).isoformat()}Z"
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
