"""Responses with events, and their filters."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from controlplane.core.long_polls import WaitField
from controlplane.core.paging import PageSizeField
from controlplane.core.rest import AnyField, ChoiceField, StrictSerializer, TimeField
from liveness.models import ServerEvent
from liveness.states import Subject


class EventSubject(serializers.Serializer[Any]):
    type = ChoiceField(list(Subject), source="subject_type")
    id = serializers.CharField(source="subject_id")
    name = serializers.CharField(source="subject_name")


class Event(serializers.Serializer[Any]):
    at = TimeField()
    subject = EventSubject(source="*", help_text="Object that the event is about.")
    to = serializers.CharField(source="to_state")
    action = serializers.CharField(help_text="Action of an operator or client; empty for a transition.")
    actor = serializers.CharField(help_text="server, liveness, operator:NAME or client:NAME.")
    reason = serializers.CharField(help_text="Reason of a transition, or the note of an action.")
    note = serializers.CharField(help_text="Note of the operator or client; otherwise empty.")
    changes = AnyField(
        help_text="Changed fields, each with its `old` and `new` value; null: the action changed no fields."
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # "from" is a keyword of Python.
        return {"from": serializers.CharField(source="from_state"), **super().get_fields()}


class EventList(serializers.Serializer[Any]):
    items = Event(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class NumberedEvent(Event):
    id = serializers.IntegerField(help_text="Use it as `after` to get later events.")
    server = serializers.UUIDField(
        source="server_id", allow_null=True, help_text="Null: the event is not about a server."
    )


class EventLog(serializers.Serializer[Any]):
    items = NumberedEvent(many=True, help_text="Oldest first.")
    last = serializers.CharField(
        help_text="Id of the last item, or `after` if the list is empty. Use it as `after` to get later events."
    )


class EventLogFilter(StrictSerializer):
    """Query parameters that filter the events of all subjects, oldest first."""

    after = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="Only events with a higher id."
    )
    limit = serializers.IntegerField(default=1000, min_value=1, max_value=1000)
    wait = WaitField(help_text="Respond when there is an event after `after`, or after so many seconds.")


class EventFilter(StrictSerializer):
    """Query parameters of a page of events, oldest first."""

    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the previous page."
    )
    limit = PageSizeField()

    def page(self, events: QuerySet[ServerEvent]) -> dict[str, Any]:
        """Return a page of these events with the cursor of the next page, or None for the last page."""
        filters = self.validated_data
        rows = list(events.filter(pk__gt=filters["cursor"]).order_by("pk")[: filters["limit"] + 1])
        items = rows[: filters["limit"]]
        return {"items": items, "next": str(items[-1].pk) if len(rows) > len(items) else None}
