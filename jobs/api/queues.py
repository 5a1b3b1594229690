"""`GET /queues`: the jobs that wait and run, by namespace and required tags, and the workers that can take them."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.paging import PageSizeField, within_limit
from controlplane.core.rest import StrictSerializer, TextField, TimeField
from jobs.selectors.queues import queues_page, read_place, write_place
from liveness.api.access import RoleCall
from liveness.models import Role


class QueueCursor(serializers.CharField):
    """Cursor of a page: the place of the last queue."""

    def to_internal_value(self, data: object) -> Any:
        try:
            return read_place(str(data))
        except ValueError:
            raise serializers.ValidationError("The cursor is not the `next` of an earlier page.") from None


class QueueFilter(StrictSerializer):
    """Filter of queues, and page."""

    cursor = QueueCursor(required=False, max_length=100_000, help_text="`next` of the previous page.")
    limit = PageSizeField()
    namespace = TextField(required=False, max_length=90, help_text="One of those that the caller reaches.")
    tag = TextField(required=False, max_length=100, help_text="Only queues with this tag.")


class QueueAnswer(serializers.Serializer):
    namespace = serializers.CharField()
    tags = serializers.ListField(
        child=serializers.CharField(), help_text="Tags that a worker must have, including those of the action."
    )
    waiting = serializers.IntegerField(help_text="Jobs that wait for a worker, and may start now.")
    parked = serializers.IntegerField(help_text="Jobs that wait for another reason than workers.")
    scheduled = serializers.IntegerField(help_text="Jobs that may start later, at their `available_at`.")
    running = serializers.IntegerField(help_text="Jobs that a worker holds, also if their code has not started.")
    oldest_at = TimeField(allow_null=True, help_text="`available_at` of the oldest waiting job. Null: none waits.")
    workers = serializers.IntegerField(
        help_text="Workers that have the tags and may get work. Full workers count, because they will have room again."
    )


class QueuePage(serializers.Serializer):
    items = QueueAnswer(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class QueuesView(RoleCall):
    """`GET /queues`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[QueueFilter], responses=QueuePage)
    def get(self, request: Request) -> Response:
        """Return queues by namespace and tags, in pages. A queue has jobs that wait or run."""
        query = QueueFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        chosen = query.validated_data
        limit = chosen["limit"]
        rows = queues_page(self.namespaces, limit + 1, after=chosen.get("cursor"), tag=chosen.get("tag"))
        items = within_limit(represent(QueueAnswer, row) for row in rows[:limit])
        last = rows[len(items) - 1] if len(items) < len(rows) else None
        return Response({"items": items, "next": last and write_place(last)})
