"""Periods of time that lists are narrowed to. Ids begin with the moment at which they were made, and sort by it."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Func, UUIDField, Value

FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
LAST_MILLISECOND = 2**48 - 1


class MomentField(forms.DateTimeField):
    """A moment in UTC, which the pages are in."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"})
        super().__init__(required=False, input_formats=FORMATS, widget=widget, **options)


def format_field(value: object) -> str:
    """What is chosen in a field, as it stands in an address."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="seconds")
    return "1" if value is True else str(value)


def first_id_at(moment: datetime) -> UUID:
    """Before every id that is made at this moment or later, and after all that were made before."""
    return UUID(int=min(max(0, round(moment.timestamp() * 1000)), LAST_MILLISECOND) << 80)


def first_id_within(period: timedelta) -> Func:
    """The same of the moment so long ago, by the database's clock. In a query of its own, so that an index finds it."""
    ago = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint - %(expressions)s"
    template = f"(select rpad(lpad(to_hex({ago}), 12, '0'), 32, '0')::uuid)"
    return Func(Value(round(period.total_seconds() * 1000)), template=template, output_field=UUIDField())
