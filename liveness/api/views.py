"""API calls about servers."""

from uuid import UUID

from django.db.models import Model
from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import represent
from controlplane.core.calls import extend_schema
from controlplane.core.long_polls import mark_not_yet
from controlplane.core.media_types import JSONLinesRenderer, JSONRenderer
from controlplane.core.paging import paged, within_limit
from controlplane.core.rest import (
    validate_body,
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
        """Return one server."""
        row = servers_with_attempts().filter(pk=server).first()
        if row is None:
            raise Http404("The server does not exist.")
        return Response(represent(ServerDetail, row))


class ServerEventsView(RoleCall):
    """`GET /servers/{id}/events`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[EventFilter], responses=EventList)
    def get(self, request: Request, server: UUID) -> Response:
        """Return the transitions of a server and the actions on it, oldest first, in pages. They outlive the server."""
        query = EventFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(EventList, query.page(events_of_server(server, self.namespaces))))

    def is_there(self, model: type[Model], id: UUID) -> bool:
        """Return True if the server exists, or if it was deleted and the caller may see its events."""
        return super().is_there(model, id) or events_of_server(id, self.namespaces).exists()


class EventsView(RoleCall):
    """`GET /events`."""

    is_about_instance = True
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    renderer_classes = [JSONRenderer, JSONLinesRenderer]

    @extend_schema(parameters=[EventLogFilter], responses=EventLog)
    def get(self, request: Request) -> Response:
        """Return the events of all subjects, oldest first. With `Accept: application/x-ndjson` each line is an event.

        The newest events are held back while an open transaction may still add earlier ones. So a reader misses none.
        With `wait`, wait for an event after `after`.
        """
        query = EventLogFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        after, wait = query.validated_data["after"], query.validated_data["wait"]
        rows = complete_events(after, query.validated_data["limit"])
        items = within_limit(represent(NumberedEvent, row) for row in rows)
        response = Response({"items": items, "last": str(items[-1]["id"] if items else after)})
        return response if items else mark_not_yet(response, wait)


class OperatorCall(RoleCall):
    """Call of an operator. Its events have the name of the token as actor."""

    roles = {"POST": {Role.OPERATOR}}

    @property
    def actor(self) -> str:
        return format_actor(self.token.name)


class ServerAction(OperatorCall):
    """Action on one server. The response is the server after the action."""

    def state_response(self, server: UUID) -> Response:
        return Response(represent(ServerDetail, servers_with_attempts().get(pk=server)))


class CordonView(ServerAction):
    """`POST /servers/{id}/cordon`."""

    @extend_schema(request=CordonRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work. Its present work continues."""
        body = validate_body(CordonRequest, request.data)
        operations.cordon_server(server, self.actor, body["note"], body.get("duration_seconds"))
        return self.state_response(server)


class UncordonView(ServerAction):
    """`POST /servers/{id}/uncordon`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server work again, even if it cordoned itself."""
        operations.uncordon_server(server, self.actor, validate_body(ActionRequest, request.data)["note"])
        return self.state_response(server)


class DrainView(ServerAction):
    """`POST /servers/{id}/drain`."""

    @extend_schema(request=DrainRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work, and time to finish its attempts. After the deadline it gives the rest back."""
        body = validate_body(DrainRequest, request.data)
        operations.drain_server(
            server, self.actor, body["note"], body.get("deadline_seconds"), body.get("duration_seconds")
        )
        return self.state_response(server)


class UndrainView(ServerAction):
    """`POST /servers/{id}/undrain`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Lift the drain and the cordon of a server, so that it gets work again."""
        operations.undrain_server(server, self.actor, validate_body(ActionRequest, request.data)["note"])
        return self.state_response(server)


class DisconnectView(ServerAction):
    """`POST /servers/{id}/disconnect`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Disconnect a server. Its running jobs run elsewhere only after its fence, when it has stopped them."""
        operations.disconnect_server(server, self.actor, validate_body(ActionRequest, request.data)["note"])
        return self.state_response(server)


class MaintenanceCall(OperatorCall):
    is_about_instance = True

    def state_response(self, cluster: str) -> Response:
        """Return the maintenance of this scope that is in force now."""
        in_force = (row for row in list_maintenances() if row["cluster"] == (cluster or None))
        return Response(represent(MaintenanceAnswer, {"maintenance": next(in_force, None)}))


class EnterMaintenanceView(MaintenanceCall):
    """`POST /maintenance/enter`."""

    @extend_schema(request=EnterRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """Give no server (of the cluster) new work. Running work finishes, and submissions wait."""
        body = validate_body(EnterRequest, request.data)
        cluster = body.get("cluster", "")
        maintenance.enter_maintenance(self.actor, body["note"], body.get("duration_seconds"), cluster)
        return self.state_response(cluster)


class ExitMaintenanceView(MaintenanceCall):
    """`POST /maintenance/exit`."""

    @extend_schema(request=MaintenanceRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """End maintenance, so that servers get work again."""
        body = validate_body(MaintenanceRequest, request.data)
        cluster = body.get("cluster", "")
        maintenance.exit_maintenance(self.actor, body["note"], cluster)
        return self.state_response(cluster)


class ReleaseBrakeView(OperatorCall):
    """`POST /brake/release`."""

    is_about_instance = True

    @extend_schema(request=ReleaseRequest, responses=ReleaseAnswer)
    def post(self, request: Request) -> Response:
        """Release brakes, so that the silent servers they hold are disconnected."""
        body = validate_body(ReleaseRequest, request.data)
        reason = body.pop("reason")
        return Response({"released": maintenance.release_brake(self.actor, reason, **body)})
