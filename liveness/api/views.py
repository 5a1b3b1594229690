"""The calls about servers."""

from typing import Any
from uuid import UUID

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.json_bodies import JSONLinesRenderer, JSONRenderer
from controlplane.core.paging import paged, within_limit
from controlplane.core.rest import (
    StrictSerializer,
)
from liveness.api.access import RoleCall
from liveness.api.serializers.events import EventFilter, EventList, EventLog, EventLogFilter, NumberedEvent
from liveness.api.serializers.operations import (
    ActionRequest,
    CordonRequest,
    DrainRequest,
    EnterRequest,
    MaintenanceAnswer,
    MaintenanceRequest,
    ReleaseAnswer,
    ReleaseRequest,
)
from liveness.api.serializers.servers import ServerDetail
from liveness.models import Role
from liveness.selectors.clusters import list_maintenances
from liveness.selectors.events import complete_events, events_of_server
from liveness.selectors.servers import servers_with_attempts
from liveness.services import maintenance, operations
from liveness.services.action_events import format_actor


class ServerView(RoleCall):
    """`GET /servers/{id}`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(responses=ServerDetail)
    def get(self, request: Request, server: UUID) -> Response:
        """One server as it is now."""
        row = servers_with_attempts().filter(pk=server).first()
        if row is None:
            raise Http404("No server has this id.")
        return Response(represent(ServerDetail, row))


class ServerEvents(RoleCall):
    """`GET /servers/{id}/events`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[EventFilter], responses=EventList)
    def get(self, request: Request, server: UUID) -> Response:
        """The transitions of a server and what was done to it, oldest first, a page at a time; they outlive it."""
        query = EventFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(EventList, query.page(events_of_server(server))))


class Events(RoleCall):
    """`GET /events`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[EventLogFilter], responses=EventLog)
    def get(self, request: Request) -> Response:
        """What happened to everything and was done to it, oldest first; with `Accept: application/x-ndjson` an event in
        each line. What a transaction that still runs has yet to add comes before what is held back for it."""
        query = EventLogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        rows = complete_events(**query.validated_data)
        items = within_limit(represent(NumberedEvent, row) for row in rows)
        return Response({"items": items, "last": str(items[-1]["id"] if items else query.validated_data["after"])})


class OperatorCall(RoleCall):
    """What only an operator may do; events name him by his token."""

    roles = {"POST": {Role.OPERATOR}}

    def validated_body(self, request: Request, serializer_class: type[StrictSerializer]) -> dict[str, Any]:
        body = serializer_class(data=request.data)
        body.is_valid(raise_exception=True)
        return body.validated_data

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)


class ServerAction(OperatorCall):
    """An action on one server: the server as it is then."""

    def state_response(self, server: UUID) -> Response:
        return Response(represent(ServerDetail, servers_with_attempts().get(pk=server)))


class Cordon(ServerAction):
    """`POST /servers/{id}/cordon`."""

    @extend_schema(request=CordonRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work; what it holds goes on."""
        body = self.validated_body(request, CordonRequest)
        operations.cordon_server(server, self.actor, body["note"], body.get("duration_seconds"))
        return self.state_response(server)


class Uncordon(ServerAction):
    """`POST /servers/{id}/uncordon`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server work again, whoever cordoned it."""
        operations.uncordon_server(server, self.actor, self.validated_body(request, ActionRequest)["note"])
        return self.state_response(server)


class Drain(ServerAction):
    """`POST /servers/{id}/drain`."""

    @extend_schema(request=DrainRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work, and until the deadline to finish what it holds; then it gives back the rest."""
        body = self.validated_body(request, DrainRequest)
        operations.drain_server(
            server, self.actor, body["note"], body.get("deadline_seconds"), body.get("duration_seconds")
        )
        return self.state_response(server)


class Undrain(ServerAction):
    """`POST /servers/{id}/undrain`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server work again: its drain and its cordon are lifted."""
        operations.undrain_server(server, self.actor, self.validated_body(request, ActionRequest)["note"])
        return self.state_response(server)


class Disconnect(ServerAction):
    """`POST /servers/{id}/disconnect`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Count a server as lost; its running jobs move no sooner than it must have stopped them itself."""
        operations.disconnect_server(server, self.actor, self.validated_body(request, ActionRequest)["note"])
        return self.state_response(server)


class MaintenanceCall(OperatorCall):
    is_about_instance = True

    def state_response(self, cluster: str) -> Response:
        """What maintenance of that scope is in force now."""
        in_force = (row for row in list_maintenances() if row["cluster"] == (cluster or None))
        return Response(represent(MaintenanceAnswer, {"maintenance": next(in_force, None)}))


class EnterMaintenance(MaintenanceCall):
    """`POST /maintenance/enter`."""

    @extend_schema(request=EnterRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """Give nobody new work, or nobody of a cluster; running work finishes, submissions queue."""
        body = self.validated_body(request, EnterRequest)
        cluster = body.get("cluster", "")
        maintenance.enter_maintenance(self.actor, body["note"], body.get("duration_seconds"), cluster)
        return self.state_response(cluster)


class ExitMaintenance(MaintenanceCall):
    """`POST /maintenance/exit`."""

    @extend_schema(request=MaintenanceRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """Give out work again."""
        body = self.validated_body(request, MaintenanceRequest)
        cluster = body.get("cluster", "")
        maintenance.exit_maintenance(self.actor, body["note"], cluster)
        return self.state_response(cluster)


class ReleaseBrake(OperatorCall):
    """`POST /brake/release`."""

    is_about_instance = True

    @extend_schema(request=ReleaseRequest, responses=ReleaseAnswer)
    def post(self, request: Request) -> Response:
        """Let the silent servers that the brake holds be disconnected."""
        body = self.validated_body(request, ReleaseRequest)
        return Response({"released": maintenance.release_brake(self.actor, body["reason"], cluster=body["cluster"])})
