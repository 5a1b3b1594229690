"""What the liveness calls take and answer."""

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models import TextField as TextColumn
from django.db.models.functions import Cast
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.core.paging import PageFilter, PageSizeField
from controlplane.core.rest import (
    IdField,
    NoteField,
    ObjectField,
    SecondsField,
    StrictSerializer,
    TextField,
    TimeField,
    WholeField,
)
from liveness.conf import conf, timeout_problems, witness_window
from liveness.models import Server, ServerEvent
from liveness.selectors.next_transition import next_transition
from liveness.selectors.servers import TimedServer
from liveness.services.registration import Registration
from liveness.states import RestartStrategy, ServerState, ServerType, Subject

CAPABILITIES_SIZE_LIMIT = 16 * 1024


def describe_config(server: Any) -> dict[str, Any]:
    """What a server is judged by, as the API writes it."""
    return {
        "heartbeat_interval_seconds": server.heartbeat_interval,
        "timeout_seconds": server.timeout,
        "termination_grace_period_seconds": server.termination_grace_period,
        "worker_task_restart_strategy": server.worker_task_restart_strategy,
    }


class Config(StrictSerializer):
    """What a server asks to be judged by; what it leaves out is the setting's default."""

    heartbeat_interval_seconds = SecondsField(required=False, min_value=0.01)
    timeout_seconds = SecondsField(required=False)
    termination_grace_period_seconds = SecondsField(required=False)
    worker_task_restart_strategy = serializers.ChoiceField(RestartStrategy.choices(), required=False)

    def validate(self, config: dict[str, Any]) -> dict[str, Any]:
        problems = timeout_problems(
            timeout=config.get("timeout_seconds", conf().timeout),
            heartbeat_interval=config.get("heartbeat_interval_seconds", conf().heartbeat_interval),
            interval=conf().interval,
            window=witness_window(),
        )
        if problems:
            raise serializers.ValidationError({"timeout_seconds": problems})
        return config


class TagList(serializers.ListField):
    """Tags, sorted, each once."""

    child = TextField(max_length=100)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 200, **options})

    def to_internal_value(self, data: Any) -> list[str]:
        return sorted(set(super().to_internal_value(data)))


class RegistrationRequest(StrictSerializer):
    type = serializers.ChoiceField(ServerType.choices())
    name = TextField()
    instance_id = IdField(help_text="Chosen by the process; the same again finds the same server.")
    cluster = TextField(default="default")
    hostname = TextField(default="", allow_blank=True)
    pid = WholeField(required=False, allow_null=True, min_value=0)
    version = TextField(default="", allow_blank=True)
    tags = TagList(required=False)
    max_concurrent = WholeField(default=1, min_value=0, max_value=100_000)
    capabilities = ObjectField(max_bytes=CAPABILITIES_SIZE_LIMIT, required=False)
    config = Config(required=False)

    def to_registration(self) -> Registration:
        fields = dict(self.validated_data)
        config = fields.pop("config", {})
        return Registration(**fields, **{key.removesuffix("_seconds"): value for key, value in config.items()})


class RegistrationAnswer(serializers.Serializer):
    id = serializers.UUIDField()
    token = serializers.CharField(help_text="Good for this server's own calls only.")
    state = serializers.CharField()
    fence_after_seconds = serializers.FloatField(allow_null=True)
    config = serializers.DictField()


class Drain(serializers.Serializer):
    """Until when a server may finish what it holds, and how much that was at the start."""

    deadline = TimeField(source="drain_deadline")
    held_at_start = serializers.IntegerField(source="drain_held", allow_null=True)


class NextTransition(serializers.Serializer):
    to = serializers.CharField()
    at = TimeField(allow_null=True, help_text="At the earliest; the next check after it finds it.")
    reason = serializers.CharField()


class LiveAttempt(serializers.Serializer):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    job = serializers.UUIDField(source="job_id")
    state = serializers.CharField()
    claimed_at = TimeField()
    started_at = TimeField(allow_null=True)


class ServerDetail(serializers.ModelSerializer):
    fresh = serializers.BooleanField(help_text="Heard within its heartbeat interval × STALENESS_MULTIPLIER.")
    own = serializers.BooleanField(help_text="A process of the control plane itself; others registered with a token.")
    cordoned = serializers.SerializerMethodField()
    cordon_until = TimeField(allow_null=True, help_text="When cordon and drain end by themselves. Null: somebody does.")
    drain = serializers.SerializerMethodField()
    config = serializers.SerializerMethodField()
    next_transition = serializers.SerializerMethodField()
    attempts = LiveAttempt(source="live", many=True, help_text="What it holds.")

    class Meta:
        model = Server
        fields = (
            "id", "type", "own", "name", "namespace", "cluster", "hostname", "pid", "version", "tags", "max_concurrent",
            "state", "fresh", "cordoned", "cordon_until", "drain", "config", "metrics", "created_at",
            "state_changed_at", "last_heartbeat_at", "next_transition", "attempts",
        )  # fmt: skip

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


class EventSubject(serializers.Serializer):
    type = serializers.ChoiceField(list(Subject), source="subject_type")
    id = serializers.CharField(source="subject_id")
    name = serializers.CharField(source="subject_name")


class Event(serializers.Serializer):
    at = TimeField()
    subject = EventSubject(source="*", help_text="What it is about.")
    to = serializers.CharField(source="to_state")
    action = serializers.CharField(help_text="What an operator did; empty for a transition.")
    actor = serializers.CharField(help_text="Who: server, liveness or operator:NAME.")
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


class ServerList(serializers.Serializer):
    items = ServerDetail(many=True)
    next = serializers.CharField(allow_null=True, help_text="The cursor of the next page; null: there is none.")


class ServerFilter(PageFilter):
    """Which servers, and which page of them."""

    cluster = TextField(required=False)
    state = serializers.ChoiceField(ServerState.choices(), required=False)
    type = serializers.ChoiceField(ServerType.choices(), required=False)
    tag = TextField(required=False, max_length=100)
    search = TextField(required=False, help_text="In the name or the host name, or the beginning of the id.")

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


class ActionRequest(StrictSerializer):
    """Why an operator does it; kept with who and when."""

    note = NoteField(required=True)


class CordonRequest(ActionRequest):
    duration_seconds = SecondsField(
        required=False, help_text="Then it gets work again by itself; by default somebody ends it."
    )


class DrainRequest(CordonRequest):
    deadline_seconds = SecondsField(required=False, help_text="To finish what it holds; its grace period by default.")


class MaintenanceRequest(ActionRequest):
    cluster = TextField(required=False, help_text="Of this cluster alone; of the whole control plane by default.")


class EnterRequest(MaintenanceRequest):
    duration_seconds = SecondsField(required=False, help_text="Then it ends by itself; by default somebody ends it.")


class ReleaseRequest(StrictSerializer):
    """Why an operator does it, in either word."""

    reason = NoteField(required=False)
    note = NoteField(required=False)
    cluster = TextField(required=False, help_text="Of this cluster alone; by default whatever it holds.")

    def validate(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields.keys() & {"reason", "note"}:
            raise serializers.ValidationError({"reason": ["This field is required."]})
        return {"reason": fields.get("reason") or fields["note"], "cluster": fields.get("cluster")}


class ReleaseAnswer(serializers.Serializer):
    released = serializers.ListField(child=serializers.CharField(), help_text="Types of server.")


class Maintenance(serializers.Serializer):
    cluster = serializers.CharField(allow_null=True, help_text="Null: the whole control plane is in maintenance.")
    since = TimeField()
    until = TimeField(allow_null=True, help_text="The first liveness check after this ends it. Null: somebody does.")
    by = serializers.CharField()
    note = serializers.CharField()


class MaintenanceAnswer(serializers.Serializer):
    maintenance = Maintenance(allow_null=True)
