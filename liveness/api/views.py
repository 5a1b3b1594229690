"""The calls about servers."""

from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.rest import StrictSerializer, paged
from liveness import selectors
from liveness.api.access import RoleCall, TokenFirst, credential
from liveness.api.serializers import (
    ActionRequest,
    DrainRequest,
    EventFilter,
    EventList,
    MaintenanceAnswer,
    RegistrationAnswer,
    RegistrationRequest,
    ReleaseAnswer,
    ReleaseRequest,
    ServerDetail,
    ServerFilter,
    ServerList,
    config_of,
)
from liveness.errors import WrongRole
from liveness.models import Instance, Role
from liveness.services import operations, registration, tokens


class Servers(RoleCall):
    """`GET /servers`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(operation_id="v1_servers_list", parameters=[ServerFilter], responses=ServerList)
    def get(self, request: Request) -> Response:
        """Servers, latest first, a page at a time."""
        asked = ServerFilter(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        return Response(paged(ServerList, asked.page(selectors.detailed())))


class Registration(TokenFirst, Servers):
    """`POST /servers`. The token is judged in the statement that registers: one round trip."""

    @extend_schema(request=RegistrationRequest, responses={201: RegistrationAnswer, 200: RegistrationAnswer})
    def post(self, request: Request) -> Response:
        """Register a process; the same instance id again finds the same server."""
        text = self.token_text(request)
        said = RegistrationRequest(data=request.data)
        said.is_valid(raise_exception=True)
        server, is_new = registration.register(text, said.registration())
        answer = {
            "id": server.id,
            "token": tokens.for_server(server.id, server.token_version, server.token_id),
            "state": server.state,
            "fence_after_seconds": server.fence_after,
            "config": self.config(server),
        }
        return Response(answer, status=201 if is_new else 200)

    def token_text(self, request: Request) -> str:
        text = credential(request).text
        if not text or text.startswith(tokens.SERVER_PREFIX):
            raise WrongRole("Servers register with an API token of role worker, not with a server token or a session.")
        return text

    def judge_token(self, request: Request) -> None:
        if request.method == "POST":
            registration.refuse_role(tokens.find(self.token_text(request)))

    def config(self, server: Any) -> dict[str, Any]:
        return config_of(server)


class ServerView(RoleCall):
    """`GET /servers/{id}`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(responses=ServerDetail)
    def get(self, request: Request, server: UUID) -> Response:
        """One server as it is now."""
        found = selectors.detailed().filter(pk=server).first()
        if found is None:
            raise Http404("No server has this id.")
        return Response(ServerDetail(found).data)


class ServerEvents(RoleCall):
    """`GET /servers/{id}/events`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(parameters=[EventFilter], responses=EventList)
    def get(self, request: Request, server: UUID) -> Response:
        """The transitions of a server and what was done to it, oldest first, a page at a time; they outlive it."""
        asked = EventFilter(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        return Response(paged(EventList, asked.page(selectors.events_of(server))))


class OperatorCall(RoleCall):
    """What only an operator may do; events name him by his token."""

    roles = {"POST": {Role.OPERATOR}}

    def said(self, request: Request, taken: type[StrictSerializer]) -> dict[str, Any]:
        said = taken(data=request.data)
        said.is_valid(raise_exception=True)
        return said.validated_data

    @property
    def actor(self) -> str:
        return operations.actor(self.token.name)


class ServerAction(OperatorCall):
    """An action on one server: the server as it is then."""

    def answer(self, server: UUID) -> Response:
        return Response(ServerDetail(selectors.detailed().get(pk=server)).data)


class Cordon(ServerAction):
    """`POST /servers/{id}/cordon`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work; what it holds goes on."""
        operations.cordon(server, self.actor, self.said(request, ActionRequest)["note"])
        return self.answer(server)


class Uncordon(ServerAction):
    """`POST /servers/{id}/uncordon`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server work again, whoever cordoned it."""
        operations.uncordon(server, self.actor, self.said(request, ActionRequest)["note"])
        return self.answer(server)


class Drain(ServerAction):
    """`POST /servers/{id}/drain`."""

    @extend_schema(request=DrainRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server no new work, and until the deadline to finish what it holds; then it gives back the rest."""
        said = self.said(request, DrainRequest)
        operations.drain(server, self.actor, said["note"], said.get("deadline_seconds"))
        return self.answer(server)


class Undrain(ServerAction):
    """`POST /servers/{id}/undrain`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Give a server work again: its drain and its cordon are lifted."""
        operations.undrain(server, self.actor, self.said(request, ActionRequest)["note"])
        return self.answer(server)


class Disconnect(ServerAction):
    """`POST /servers/{id}/disconnect`."""

    @extend_schema(request=ActionRequest, responses=ServerDetail)
    def post(self, request: Request, server: UUID) -> Response:
        """Count a server as lost; its running jobs move no sooner than it must have stopped them itself."""
        operations.disconnect(server, self.actor, self.said(request, ActionRequest)["note"])
        return self.answer(server)


class MaintenanceCall(OperatorCall):
    def answer(self) -> Response:
        instance = Instance.objects.get()
        shown = None if instance.maintenance_since is None else instance
        return Response(MaintenanceAnswer({"maintenance": shown}).data)


class EnterMaintenance(MaintenanceCall):
    """`POST /maintenance/enter`."""

    @extend_schema(request=ActionRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """Give nobody new work; running work finishes, submissions queue."""
        operations.enter_maintenance(self.actor, self.said(request, ActionRequest)["note"])
        return self.answer()


class ExitMaintenance(MaintenanceCall):
    """`POST /maintenance/exit`."""

    @extend_schema(request=ActionRequest, responses=MaintenanceAnswer)
    def post(self, request: Request) -> Response:
        """Give out work again."""
        operations.exit_maintenance(self.actor, self.said(request, ActionRequest)["note"])
        return self.answer()


class ReleaseBrake(OperatorCall):
    """`POST /brake/release`."""

    @extend_schema(request=ReleaseRequest, responses=ReleaseAnswer)
    def post(self, request: Request) -> Response:
        """Let the silent servers that the brake holds be disconnected."""
        reason = self.said(request, ReleaseRequest)["reason"]
        return Response({"released": operations.release_brake(self.actor, reason)})
