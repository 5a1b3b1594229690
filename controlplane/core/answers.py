"""Rows as the API answers them."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from django.contrib.postgres.fields import ArrayField
from django.db import models
from rest_framework import serializers
from rest_framework.relations import PKOnlyObject

from controlplane.core.rest import TimeField, shared_serializer


class ModelAnswer(serializers.ModelSerializer):
    """A row as the API answers it: what the framework asks of each field for each row, it is asked once."""

    serializer_field_mapping: ClassVar = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DateTimeField: TimeField,
    }

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shape = shape_of(type(self))
        answer = shape.fields.copy()
        answer.update(zip(shape.columns, shape.read_columns(instance), strict=True))
        for name, read in shape.computed:
            answer[name] = read(instance)
        for name, represent in shape.represented:
            if (value := answer[name]) is not None:
                answer[name] = represent(value)
        return answer


def represent(answer: type[serializers.Serializer], row: Any) -> Any:
    """A row as it is answered. Nothing of it is left for Python's collector: a serializer of its own, or one with
    `many=True`, would hold its fields or rows, which hold it; so do a row and what was fetched with it."""
    written = shared_serializer(answer).to_representation(row)
    let_go_of_fetched(row)
    return written


def let_go_of_fetched(row: Any) -> None:
    """Of what was prefetched: each of those rows holds this one."""
    for related in getattr(row, "__dict__", {}).pop("_prefetched_objects_cache", {}).values():
        for one in related:
            let_go_of_fetched(one)


class Shape(NamedTuple):
    """How rows are read, and written, for an answer."""

    fields: dict[str, None]
    """Of the answer, in its order."""
    columns: list[str]
    """Those that are attributes of the row."""
    read_columns: Callable[[Any], tuple[Any, ...]]
    computed: list[tuple[str, Callable[[Any], Any]]]
    """The others, and how each is read of a row."""
    represented: list[tuple[str, Callable[[Any], Any]]]
    """Those that are not written as they are."""


@cache
def shape_of(answer: type[ModelAnswer]) -> Shape:
    """Making fields takes longer than answering a row, and reading leaves nothing in them."""
    fields = {name: field for name, field in answer().fields.items() if not field.write_only}
    columns = {name: field.source or name for name, field in fields.items() if is_attribute(field, answer)}
    return Shape(
        dict.fromkeys(fields),
        list(columns),
        read_attributes(*columns.values()),
        [(name, build_reader(field)) for name, field in fields.items() if name not in columns],
        [(name, write) for name, field in fields.items() if (write := build_writer(field, answer))],
    )


def read_attributes(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """All at once, which is a fraction of the time; of one name, attrgetter would give no tuple."""
    return attrgetter(*names) if len(names) > 1 else lambda row: tuple(getattr(row, name) for name in names)


def is_attribute(field: Any, answer: type[ModelAnswer]) -> bool:
    is_usual = type(field).get_attribute is serializers.Field.get_attribute
    return is_usual and len(field.source_attrs) == 1 and not callable(getattr(answer.Meta.model, field.source, None))


AS_THEY_ARE = {
    serializers.CharField.to_representation: models.CharField | models.TextField,
    serializers.IntegerField.to_representation: models.IntegerField,
    serializers.BooleanField.to_representation: models.BooleanField,
    serializers.UUIDField.to_representation: models.UUIDField,
    TimeField.to_representation: models.DateTimeField,
}
"""What writes a value as the column has it, or as json_bodies.JSONRenderer writes that; and of which columns."""


def build_writer(field: Any, answer: type[ModelAnswer]) -> Callable[[Any], Any] | None:
    """How a value is written, None: as it is."""
    if is_method(field):
        return None
    model: Any = answer.Meta.model
    columns = {column.attname: column for column in model._meta.concrete_fields}
    column, write = columns.get(field.source), type(field).to_representation
    if write is serializers.ListField.to_representation and isinstance(column, ArrayField):
        column, write = column.base_field, type(field.child).to_representation
    kind: Any = AS_THEY_ARE.get(write, ())
    if isinstance(column, kind):
        return None
    if write is serializers.ListSerializer.to_representation:
        return list_writer(field.child)
    written: Callable[[Any], Any] = field.to_representation
    return written


def list_writer(child: Any) -> Callable[[Any], list[Any]]:
    def write(rows: Any) -> list[Any]:
        return [
            child.to_representation(row)
            for row in (rows.all() if isinstance(rows, models.manager.BaseManager) else rows)
        ]

    return write


def build_reader(field: Any) -> Callable[[Any], Any]:
    if is_method(field):
        method: Callable[[Any], Any] = getattr(field.parent, field.method_name)
        return method

    def read(row: Any) -> Any:
        value = field.get_attribute(row)
        return None if isinstance(value, PKOnlyObject) and value.pk is None else value

    return read


def is_method(field: Any) -> bool:
    """What it reads is written already."""
    return type(field) is serializers.SerializerMethodField
