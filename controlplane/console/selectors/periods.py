"""Time periods of the filters. Ids begin with their creation time and sort by it."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Func, UUIDField, Value

from controlplane.core.bounds import clamp_moment

FORMATS = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
LAST_MILLISECOND = 2**48 - 1


class MomentField(forms.DateTimeField):
    """Date and time in UTC, the time zone of the pages."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"})
        super().__init__(required=False, input_formats=FORMATS, widget=widget, **options)

    def clean(self, value: Any) -> datetime | None:
        at = super().clean(value)
        return clamp_moment(at) if at else None


def format_field(value: object) -> str:
    """Return the value of a field as a query parameter."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="seconds")
    return "1" if value is True else str(value)


def first_id_at(moment: datetime) -> UUID:
    """Return the smallest id that can be created at this moment. Ids created earlier sort before it."""
    return UUID(int=min(max(0, round(moment.timestamp() * 1000)), LAST_MILLISECOND) << 80)


def first_id_within(period: timedelta) -> Func:
    """Return the smallest id of the period that ends now, by the database's clock.

    It is a subquery, because PostgreSQL uses the index only then.
    """
    ago = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint - %(expressions)s"
    template = f"(select rpad(lpad(to_hex({ago}), 12, '0'), 32, '0')::uuid)"
    return Func(Value(round(period.total_seconds() * 1000)), template=template, output_field=UUIDField())
