"""Bodies as nearly all are, read by functions that are derived from their serializers once.

A serializer stays the one home of what is valid. Of it a function is made that takes what is plainly so, and gives what
the serializer would; whatever else raises NotPlain, and is for the serializer to judge, in its own words. A field that
is not known here is asked itself.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from uuid import UUID

from django.core import validators
from django.core.exceptions import ValidationError
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.validators import ProhibitSurrogateCharactersValidator

Reader = Callable[[Any], Any]
"""What a value says. Raises those of REFUSALS."""


class NotPlain(Exception):
    """It is for the serializer to judge."""


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
"""Methods that the functions here stand in for: who has others is asked itself."""


def build_reader(field: Any) -> Reader:
    """The function of a field, or of a serializer."""
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
    """The function of a serializer, which is made of it when it is asked for first."""
    return build_reader(serializer())


def other_validators(field: Any, *known: type) -> list[Callable[[Any], Any]]:
    """Those of a field that are not `known` to what reads it."""
    return [validate for validate in field.validators if type(validate) not in known]


def validated(read: Reader, others: Iterable[Callable[[Any], Any]]) -> Reader:
    """With further validators."""
    others = tuple(build_check(validate) for validate in others)
    if not others:
        return read

    def read_and_validate(value: Any) -> Any:
        value = read(value)
        for check in others:
            check(value)
        return value

    return read_and_validate


def build_check(validate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A pattern is looked for without what makes a text of a text."""
    if type(validate) is not validators.RegexValidator or validate.inverse_match:
        return validate
    search = validate.regex.search  # type: ignore[union-attr]

    def check(value: str) -> None:
        if search(value) is None:
            raise NotPlain

    return check


def limits(field: Any, *kinds: type) -> list[Any]:
    """What the validators of these kinds say, None where there is none. Those of a field that are lazy are kept."""
    found = {type(validate): validate.limit_value for validate in field.validators if type(validate) in kinds}
    return [value() if callable(value := found.get(kind)) else value for kind in kinds]


def value_reader(field: Any) -> Reader:
    """Of a field that is known by nothing but what it makes of a value."""

    def read(value: Any) -> Any:
        if value is None:
            raise NotPlain
        return field.to_internal_value(value)

    return validated(read, field.validators)


def text_reader(field: Any) -> Reader:
    blank, trims = field.allow_blank, field.trim_whitespace
    longest, shortest = limits(field, validators.MaxLengthValidator, validators.MinLengthValidator)
    most, least = math.inf if longest is None else longest, shortest or 0

    def read(value: Any) -> str:
        if type(value) is not str or not value.isascii() or "\0" in value:
            raise NotPlain
        text: str = value.strip() if trims else value
        if not least <= len(text) <= most or not text:
            raise NotPlain
        return text

    def read_or_ask(value: Any) -> Any:
        """Of a blank text, and of one that is not of ASCII, all is asked."""
        if value == "" and blank:
            return ""
        if type(value) is str and not value.isascii():
            return field.run_validation(value)
        return read_valid(value)

    read_valid = validated(read, other_validators(field, *OF_TEXTS, *OF_LIMITS[:2]))
    return read_or_ask


def choice_reader(field: Any) -> Reader:
    values = field.choice_strings_to_values

    def read(value: Any) -> Any:
        if type(value) is not str or value not in values or not value:
            raise NotPlain
        return values[value]

    return validated(read, field.validators)


def id_reader(field: Any) -> Reader:
    def read(value: Any) -> UUID:
        if type(value) is not str:
            raise NotPlain
        try:
            return UUID(value)
        except ValueError:
            raise NotPlain from None

    return validated(read, field.validators)


def flag_reader(field: Any) -> Reader:
    def read(value: Any) -> bool:
        if value is not True and value is not False:
            raise NotPlain
        return value

    return validated(read, field.validators)


def whole_reader(field: Any) -> Reader:
    least, most = bounds(field)

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise NotPlain
        return value

    return validated(read, other_validators(field, *OF_LIMITS[2:]))


def number_reader(field: Any) -> Reader:
    least, most = bounds(field)

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most or not math.isfinite(value):
            raise NotPlain
        return float(value)

    return validated(read, other_validators(field, *OF_LIMITS[2:]))


def bounds(field: Any) -> tuple[float, float]:
    least, most = limits(field, validators.MinValueValidator, validators.MaxValueValidator)
    return -math.inf if least is None else least, math.inf if most is None else most


def any_reader(field: Any) -> Reader:
    if field.binary:
        return field.run_validation

    def read(value: Any) -> Any:
        if value is None:
            raise NotPlain
        return value

    return validated(read, field.validators)


def list_reader(field: Any) -> Reader:
    read_child, longest = build_reader(field.child), field.max_length
    most, least = math.inf if longest is None else longest, max(field.min_length or 0, 0 if field.allow_empty else 1)

    def read(value: Any) -> list[Any]:
        if type(value) is not list or not least <= len(value) <= most:
            raise NotPlain
        return [read_child(item) for item in value]

    return validated(read, other_validators(field, *OF_LIMITS[:2]))


def many_reader(many: Any) -> Reader:
    """Of a serializer's list."""
    read = list_reader(many)
    if type(many).validate is serializers.ListSerializer.validate:
        return read
    return lambda value: many.validate(read(value))


def object_reader(serializer: Any) -> Reader:
    """Of a serializer that knows its fields; see rest.StrictSerializer."""
    fields = serializer.fields
    if serializer.validators or any(
        field.read_only or field.write_only or field.source != name for name, field in fields.items()
    ):
        return serializer.run_validation
    readers = {name: build_reader(field) for name, field in fields.items()}
    checks = {name: check for name, (_, _, check) in serializer.checks.items() if check is not None}
    required = {name for name, field in fields.items() if field.required}
    defaults = {name: field for name, field in fields.items() if not field.required and field.default is not empty}
    is_validated = type(serializer).validate is not serializers.Serializer.validate

    def read(data: Any) -> Any:
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
"""By the method that each stands in for: a field that has another is asked itself."""
