"""Serializers of API responses that are faster than those of Django REST Framework (DRF)."""

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from django.contrib.postgres.fields import ArrayField
from django.db import models
from rest_framework import serializers
from rest_framework.relations import PKOnlyObject

from controlplane.core.lean_bodies import AnyField
from controlplane.core.rest import TimeField, shared_serializer


class ModelAnswer(serializers.ModelSerializer):
    """Serializer of rows that examines its fields once per class. DRF does so once per row."""

    serializer_field_mapping: ClassVar = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DateTimeField: TimeField,
    }

    def to_representation(self, instance: object) -> dict[str, Any]:
        shape = shape_of(type(self))
        answer = shape.fields.copy()
        answer.update(zip(shape.columns, shape.read_columns(instance), strict=True))
        for name, read in shape.computed:
            answer[name] = read(instance)
        for name, represent in shape.represented:
            if (value := answer[name]) is not None:
                answer[name] = represent(value)
        return answer


def represent(answer: type[serializers.Serializer], row: object) -> Any:
    """Return the row as the API shows it. Leave no reference cycle behind.

    All rows share one serializer, because a new serializer and its fields would form a cycle. A row and its prefetched
    rows form a cycle too, so the prefetched rows are dropped.
    """
    written = shared_serializer(answer).to_representation(row)
    let_go_of_fetched(row)
    return written


def let_go_of_fetched(row: object) -> None:
    """Drop the rows that were prefetched for this row, because each of them refers back to it."""
    for related in getattr(row, "__dict__", {}).pop("_prefetched_objects_cache", {}).values():
        for one in related:
            let_go_of_fetched(one)


class Shape(NamedTuple):
    """Plan for writing the rows of one model as responses."""

    fields: dict[str, None]
    """Fields of the response in their order. Each value is None."""
    columns: list[str]
    """Fields that are attributes of the row."""
    read_columns: Callable[[Any], tuple[Any, ...]]
    computed: list[tuple[str, Callable[[Any], Any]]]
    """All other fields, each with the function that reads it from a row."""
    represented: list[tuple[str, Callable[[Any], Any]]]
    """Fields whose value must be converted, each with the function that converts it."""


@cache
def shape_of(answer: type[ModelAnswer]) -> Shape:
    """Return the plan of a serializer class. It is cached, because building fields takes longer than writing a row."""
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
    """Return a function that returns these attributes of a row as a tuple.

    One call of attrgetter is much faster than single reads. Given one name, attrgetter itself would return no tuple.
    """
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
"""DRF methods that need no call for these columns: media_types.JSONRenderer writes the same JSON without them."""


def build_writer(field: Any, answer: type[ModelAnswer]) -> Callable[[Any], Any] | None:
    """Return the function that converts a value for the response, or None if the value needs no conversion."""
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
    def write(rows: Iterable[object]) -> list[Any]:
        return [
            child.to_representation(row)
            for row in (rows.all() if isinstance(rows, models.manager.BaseManager) else rows)
        ]

    return write


def build_reader(field: Any) -> Callable[[Any], Any]:
    if is_method(field):
        method: Callable[[Any], Any] = getattr(field.parent, field.method_name)
        return method

    def read(row: object) -> Any:
        value = field.get_attribute(row)
        return None if isinstance(value, PKOnlyObject) and value.pk is None else value

    return read


def is_method(field: AnyField) -> bool:
    """Return True if a method of the serializer computes the field. Its value needs no conversion."""
    return type(field) is serializers.SerializerMethodField
