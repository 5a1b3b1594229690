"""Rows as the API answers them."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar

from django.db import models
from rest_framework import serializers
from rest_framework.relations import PKOnlyObject

from controlplane.core.rest import TimeField


class ModelAnswer(serializers.ModelSerializer):
    """A row as the API answers it: what the framework asks of each field for each row, it is asked once."""

    serializer_field_mapping: ClassVar = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DateTimeField: TimeField,
    }

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {
            name: value if (value := read(instance)) is None or represent is None else represent(value)
            for name, read, represent in list_readers(type(self))
        }


@cache
def list_readers(answer: type[ModelAnswer]) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None]]:
    """Each field that is shown: its name, how it is read of a row, and how it is written, None: as it is. Making fields
    takes longer than answering a row, and reading leaves nothing in them."""
    return [
        (name, build_reader(field, answer), None if is_written_as_it_is(field, answer) else field.to_representation)
        for name, field in answer().fields.items()
        if not field.write_only
    ]


AS_THEY_ARE = {
    serializers.CharField.to_representation: models.CharField | models.TextField,
    serializers.IntegerField.to_representation: models.IntegerField,
    serializers.BooleanField.to_representation: models.BooleanField,
}
"""What writes a value as the column has it, and of which columns."""


def is_written_as_it_is(field: Any, answer: type[ModelAnswer]) -> bool:
    model: Any = answer.Meta.model
    columns = {column.attname: column for column in model._meta.concrete_fields}
    kind: Any = AS_THEY_ARE.get(type(field).to_representation, ())
    return isinstance(columns.get(field.source), kind)


def build_reader(field: Any, answer: type[ModelAnswer]) -> Callable[[Any], Any]:
    is_usual = type(field).get_attribute is serializers.Field.get_attribute
    if is_usual and len(field.source_attrs) == 1 and not callable(getattr(answer.Meta.model, field.source, None)):
        return attrgetter(field.source)

    def read(row: Any) -> Any:
        value = field.get_attribute(row)
        return None if isinstance(value, PKOnlyObject) and value.pk is None else value

    return read
