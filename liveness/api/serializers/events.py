"""What events are answered as, and which are asked for."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from controlplane.core.paging import PageSizeField
from controlplane.core.rest import ChoiceField, StrictSerializer, TimeField
from liveness.models import ServerEvent
from liveness.states import Subject


class EventSubject(serializers.Serializer):
    type = ChoiceField(list(Subject), source="subject_type")
    id = serializers.CharField(source="subject_id")
    name = serializers.CharField(source="subject_name")


class Event(serializers.Serializer):
    at = TimeField()
    subject = EventSubject(source="*", help_text="What it is about.")
    to = serializers.CharField(source="to_state")
    action = serializers.CharField(help_text="What an operator did; empty for a transition.")
    actor = serializers.CharField(help_text="Who: server, liveness, operator:NAME or client:NAME.")
    reason = serializers.CharField(help_text="Why; of what an operator did, his note.")
    note = serializers.CharField(help_text="Why an operator did it; empty where none did.")

    def get_fields(self) -> dict[str, serializers.Field]:
        # "from" is a word of Python.
        return {"from": serializers.CharField(source="from_state"), **super().get_fields()}


class EventList(serializers.Serializer):
    items = Event(many=True)
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")


class NumberedEvent(Event):
    id = serializers.IntegerField(help_text="`after` of the call for what came later.")
    server = serializers.UUIDField(source="server_id", allow_null=True, help_text="Null: of no server.")


class EventLog(serializers.Serializer):
    items = NumberedEvent(many=True, help_text="Oldest first.")
    last = serializers.CharField(help_text="The id of the last, or `after`: what comes later is found from there.")


class EventLogFilter(StrictSerializer):
    """Events of all subjects, oldest first."""

    after = serializers.IntegerField(default=0, min_value=0, max_value=2**63 - 1, help_text="The id of an event.")
    limit = serializers.IntegerField(default=1000, min_value=1, max_value=1000)


class EventFilter(StrictSerializer):
    """Which page of events, oldest first."""

    cursor = serializers.IntegerField(
        default=0, min_value=0, max_value=2**63 - 1, help_text="`next` of the previous page."
    )
    limit = PageSizeField()

    def page(self, events: QuerySet[ServerEvent]) -> dict[str, Any]:
        """The page of these events, with the cursor of the next; null: there is none."""
        filters = self.validated_data
        rows = list(events.filter(pk__gt=filters["cursor"]).order_by("pk")[: filters["limit"] + 1])
        items = rows[: filters["limit"]]
        return {"items": items, "next": str(items[-1].pk) if len(rows) > len(items) else None}
