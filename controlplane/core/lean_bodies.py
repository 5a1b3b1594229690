"""Fast readers of request bodies, derived from their serializers.

The serializer stays the only definition of a valid body. A reader accepts plainly valid values, and returns the same
result as the serializer. For any other value it raises NotPlain; then the serializer decides and writes the error. A
field of an unknown kind is validated by its own methods.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from django.core import validators
from django.core.exceptions import ValidationError
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.validators import ProhibitSurrogateCharactersValidator

AnyField: TypeAlias = "serializers.Field[Any, Any, Any, Any]"
Reader = Callable[[Any], Any]
"""Function that returns the validated value, or raises one of REFUSALS."""


class NotPlain(Exception):
    """The value is not plainly valid, so the serializer must decide."""


REFUSALS = (NotPlain, serializers.ValidationError, ValidationError)

OF_TEXTS = (validators.ProhibitNullCharactersValidator, ProhibitSurrogateCharactersValidator)
OF_LIMITS = (
    validators.MaxLengthValidator,
    validators.MinLengthValidator,
    validators.MaxValueValidator,
    validators.MinValueValidator,
)
ITS_OWN = {
    name: {vars(cls)[name] for cls in classes}
    for name, classes in {
        "run_validation": (
            serializers.Field, serializers.CharField, serializers.Serializer, serializers.ListSerializer,
        ),
        "validate_empty_values": (serializers.Field,),
        "run_validators": (serializers.Field, serializers.Serializer),
        "get_default": (serializers.Field,),
    }.items()
}  # fmt: skip
"""Methods that the readers replace. A field that overrides one of them is validated by its own methods."""


def build_reader(field: AnyField) -> Reader:
    """Return the reader of a field or of a serializer."""
    kind = type(field)
    build = BUILDERS.get(kind.to_internal_value, value_reader)
    is_unusual = any(getattr(kind, name) not in known for name, known in ITS_OWN.items())
    if is_unusual or (build is value_reader and kind.run_validation is not serializers.Field.run_validation):
        return field.run_validation
    if not field.allow_null:
        return build(field)
    read = build(field)
    return lambda value: None if value is None else read(value)


@cache
def reader_of(serializer: Callable[[], Any]) -> Reader:
    """Return the reader of a serializer class, built on first use."""
    return build_reader(serializer())


def other_validators(field: AnyField, *known: type) -> list[Callable[[Any], Any]]:
    """Return the validators of a field that its reader does not cover (`known`)."""
    return [validate for validate in validators_of(field) if type(validate) not in known]


def validators_of(field: AnyField) -> list[Any]:
    """Return the validators of a field. Their type depends on the field."""
    return list(field.validators)


def validated(read: Reader, others: Iterable[Callable[[Any], Any]]) -> Reader:
    """Return a reader that also runs these validators."""
    others = tuple(build_check(validate) for validate in others)
    if not others:
        return read

    def read_and_validate(value: object) -> Any:
        value = read(value)
        for check in others:
            check(value)
        return value

    return read_and_validate


def build_check(validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that is faster for patterns, because it does not convert the value to text first."""
    if type(validate) is not validators.RegexValidator or validate.inverse_match:
        return validate
    search = validate.regex.search  # type: ignore[union-attr]

    def check(value: str) -> None:
        if search(value) is None:
            raise NotPlain

    return check


def limits(field: AnyField, *kinds: type) -> list[Any]:
    """Return the limit of each kind of validator, None for a missing validator. Evaluate lazy limits once."""
    found = {type(validate): validate.limit_value for validate in validators_of(field) if type(validate) in kinds}
    return [value() if callable(value := found.get(kind)) else value for kind in kinds]


def value_reader(field: AnyField) -> Reader:
    """Return a reader that calls the field's own `to_internal_value`."""

    def read(value: object) -> Any:
        if value is None:
            raise NotPlain
        return field.to_internal_value(value)

    return validated(read, validators_of(field))


def text_reader(field: Any) -> Reader:
    blank, trims = field.allow_blank, field.trim_whitespace
    longest, shortest = limits(field, validators.MaxLengthValidator, validators.MinLengthValidator)
    most, least = math.inf if longest is None else longest, shortest or 0

    def read(value: object) -> str:
        if type(value) is not str or not value.isascii() or "\0" in value:
            raise NotPlain
        text: str = value.strip() if trims else value
        if not least <= len(text) <= most or not text:
            raise NotPlain
        return text

    def read_or_ask(value: object) -> Any:
        """Read ASCII text directly. Run the field's own validation for other text."""
        if value == "" and blank:
            return ""
        if type(value) is str and not value.isascii():
            return field.run_validation(value)
        return read_valid(value)

    read_valid = validated(read, other_validators(field, *OF_TEXTS, *OF_LIMITS[:2]))
    return read_or_ask


def choice_reader(field: Any) -> Reader:
    values = field.choice_strings_to_values

    def read(value: object) -> Any:
        if type(value) is not str or value not in values or not value:
            raise NotPlain
        return values[value]

    return validated(read, validators_of(field))


def id_reader(field: AnyField) -> Reader:
    def read(value: object) -> UUID:
        if type(value) is not str:
            raise NotPlain
        try:
            return UUID(value)
        except ValueError:
            raise NotPlain from None

    return validated(read, validators_of(field))


def whole_reader(field: AnyField) -> Reader:
    least, most = bounds(field)

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise NotPlain
        return value

    return validated(read, other_validators(field, *OF_LIMITS[2:]))


def number_reader(field: AnyField) -> Reader:
    least, most = bounds(field)

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most or not math.isfinite(value):
            raise NotPlain
        return float(value)

    return validated(read, other_validators(field, *OF_LIMITS[2:]))


def bounds(field: AnyField) -> tuple[float, float]:
    least, most = limits(field, validators.MinValueValidator, validators.MaxValueValidator)
    return -math.inf if least is None else least, math.inf if most is None else most


def any_reader(field: serializers.JSONField) -> Reader:
    if field.binary:
        return field.run_validation

    def read(value: object) -> Any:
        if value is None:
            raise NotPlain
        return value

    return validated(read, validators_of(field))


def list_reader(field: Any) -> Reader:
    read_child, longest = build_reader(field.child), field.max_length
    most, least = math.inf if longest is None else longest, max(field.min_length or 0, 0 if field.allow_empty else 1)

    def read(value: object) -> list[Any]:
        if type(value) is not list or not least <= len(value) <= most:
            raise NotPlain
        return [read_child(item) for item in value]

    return validated(read, other_validators(field, *OF_LIMITS[:2]))


def many_reader(many: "serializers.ListSerializer[Any]") -> Reader:
    """Return the reader of a list of serializers."""
    read = list_reader(many)
    if type(many).validate is serializers.ListSerializer.validate:
        return read
    return lambda value: many.validate(read(value))


def object_reader(serializer: Any) -> Reader:
    """Return the reader of a serializer with known fields; see rest.StrictSerializer."""
    fields = serializer.fields
    if serializer.validators or any(
        field.read_only or field.write_only or field.source != name for name, field in fields.items()
    ):
        return serializer.run_validation
    readers = {name: build_reader(field) for name, field in fields.items()}
    checks = {name: check for name in fields if (check := getattr(serializer, f"validate_{name}", None))}
    required = {name for name, field in fields.items() if field.required}
    defaults = {name: field for name, field in fields.items() if not field.required and field.default is not empty}
    is_validated = type(serializer).validate is not serializers.Serializer.validate

    def read(data: object) -> Any:
        if type(data) is not dict or not data.keys() >= required:
            raise NotPlain
        try:
            values = {name: readers[name](value) for name, value in data.items()}
        except KeyError:
            raise NotPlain from None
        for name, field in defaults.items():
            if name not in values:
                values[name] = field.get_default()
        for name, check in checks.items():
            if name in values:
                values[name] = check(values[name])
        return serializer.validate(values) if is_validated else values

    return read


BUILDERS: dict[Any, Callable[[Any], Reader]] = {
    serializers.CharField.to_internal_value: text_reader,
    serializers.JSONField.to_internal_value: any_reader,
    serializers.ListField.to_internal_value: list_reader,
    serializers.ListSerializer.to_internal_value: many_reader,
}
"""Builders of readers, by the `to_internal_value` method that they replace. Other fields validate themselves."""
