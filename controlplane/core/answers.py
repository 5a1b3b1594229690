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
            name: None if (value := read(instance)) is None else represent(value)
            for name, read, represent in list_readers(type(self))
        }


@cache
def list_readers(answer: type[ModelAnswer]) -> list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Each field that is shown: its name, how it is read of a row, and how it is written. Making fields takes longer
    than answering a row, and reading leaves nothing in them."""
    return [
        (name, build_reader(field, answer), field.to_representation)
        for name, field in answer().fields.items()
        if not field.write_only
    ]


def build_reader(field: Any, answer: type[ModelAnswer]) -> Callable[[Any], Any]:
    is_usual = type(field).get_attribute is serializers.Field.get_attribute
    if is_usual and len(field.source_attrs) == 1 and not callable(getattr(answer.Meta.model, field.source, None)):
        return attrgetter(field.source)

    def read(row: Any) -> Any:
        value = field.get_attribute(row)
        return None if isinstance(value, PKOnlyObject) and value.pk is None else value

    return read
