"""Responses with servers, and their filters."""

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models import TextField as TextColumn
from django.db.models.functions import Cast
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.core.answers import ModelAnswer
from controlplane.core.paging import PageFilter
from controlplane.core.rest import ChoiceField, TextField, TimeField
from liveness.api.serializers.registration import describe_config
from liveness.models import Server
from liveness.selectors.next_transition import next_transition
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType


class Drain(serializers.Serializer[Any]):
    """Drain of a server: its deadline, and the number of attempts when it began."""

    deadline = TimeField(source="drain_deadline")
    held_at_start = serializers.IntegerField(source="drain_held", allow_null=True)


class NextTransition(serializers.Serializer[Any]):
    to = serializers.CharField()
    at = TimeField(allow_null=True, help_text="Earliest time; the first liveness check after it makes the transition.")
    reason = serializers.CharField()


class LiveAttempt(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    job = serializers.UUIDField(source="job_id")
    state = serializers.CharField()
    claimed_at = TimeField()
    started_at = TimeField(allow_null=True)
    worker_slots = serializers.IntegerField(help_text="Slots of the server that it uses.")


class ServerDetail(ModelAnswer):
    fresh = serializers.BooleanField(help_text="Last heartbeat within heartbeat interval × STALENESS_MULTIPLIER.")
    own = serializers.BooleanField(help_text="True: a process of the control plane itself.")
    cordoned = serializers.SerializerMethodField()
    cordon_until = TimeField(
        allow_null=True, help_text="Time when cordon and drain expire. Null: an operator ends them."
    )
    drain = serializers.SerializerMethodField()
    config = serializers.SerializerMethodField()
    next_transition = serializers.SerializerMethodField()
    used_slots = serializers.SerializerMethodField(help_text="Slots that its attempts use, of `max_concurrent`.")
    attempts = LiveAttempt(source="live", many=True, help_text="Attempts that the server holds.")

    class Meta:
        model = Server
        fields = (
            "id", "type", "own", "name", "namespace", "cluster", "hostname", "pid", "version", "tags", "max_concurrent",
            "used_slots", "state", "fresh", "cordoned", "cordon_until", "drain", "config", "metrics", "created_at",
            "state_changed_at", "last_heartbeat_at", "next_transition", "attempts",
        )  # fmt: skip

    def get_used_slots(self, server: TimedServer) -> int:
        return sum(attempt.worker_slots for attempt in server.live)

    def get_cordoned(self, server: Server) -> bool:
        return server.cordoned_by is not None

    @extend_schema_field(Drain(allow_null=True))
    def get_drain(self, server: Server) -> dict[str, Any] | None:
        return None if server.drain_deadline is None else Drain(server).data

    @extend_schema_field(NextTransition(allow_null=True))
    def get_next_transition(self, server: TimedServer) -> dict[str, Any] | None:
        return next_transition(server)

    def get_config(self, server: Server) -> dict[str, Any]:
        return describe_config(server)


class ServerList(serializers.Serializer[Any]):
    items = ServerDetail(many=True)
    next = serializers.CharField(allow_null=True, help_text="Cursor of the next page; null: this is the last page.")


class ServerFilter(PageFilter):
    """Query parameters that filter and page a list of servers."""

    cluster = TextField(required=False)
    state = ChoiceField(ServerState.choices(), required=False)
    type = ChoiceField(ServerType.choices(), required=False)
    tag = TextField(required=False, max_length=100)
    search = TextField(required=False, help_text="Part of the name or host name, or the beginning of the id.")

    def match_rows(self, rows: QuerySet[Server]) -> QuerySet[Server]:
        filters = self.validated_data
        chosen = {field: filters[field] for field in ("cluster", "state", "type") if field in filters}
        if "tag" in filters:
            chosen["tags__contains"] = [filters["tag"]]
        servers = rows.filter(**chosen)
        if "search" in filters:
            text = filters["search"]
            servers = servers.annotate(id_text=Cast("pk", TextColumn())).filter(
                Q(name__icontains=text) | Q(hostname__icontains=text) | Q(id_text__startswith=text.lower())
            )
        return servers

    def page(self, rows: QuerySet[Server], floor: UUID | None = None) -> dict[str, Any]:
        return super().page(self.match_rows(rows), floor)
