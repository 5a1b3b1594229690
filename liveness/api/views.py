"""The calls about servers."""

from typing import Any
from uuid import UUID

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from liveness import selectors
from liveness.api.access import RoleCall, credential
from liveness.api.serializers import EventList, RegistrationAnswer, RegistrationRequest, ServerDetail, config_of
from liveness.errors import WrongRole
from liveness.models import Role
from liveness.services import registration, tokens


class Registration(RoleCall):
    """`POST /servers`. The token is judged in the statement that registers: one round trip."""

    @extend_schema(request=RegistrationRequest, responses={201: RegistrationAnswer, 200: RegistrationAnswer})
    def post(self, request: Request) -> Response:
        """Register a process; the same instance id again finds the same server."""
        text = credential(request).text
        if text.startswith(tokens.SERVER_PREFIX):
            raise WrongRole("Servers register with an API token of role worker, not with a server token.")
        said = RegistrationRequest(data=request.data)
        said.is_valid(raise_exception=True)
        server, is_new = registration.register(text, said.registration())
        answer = {
            "id": server.id,
            "token": tokens.for_server(server.id, server.token_version, server.token_id),
            "state": server.state,
            "fence_after_seconds": registration.fence_after(server),
            "config": self.config(server),
        }
        return Response(answer, status=201 if is_new else 200)

    def config(self, server: Any) -> dict[str, Any]:
        return config_of(server)


class ServerView(RoleCall):
    """`GET /servers/{id}`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(responses=ServerDetail)
    def get(self, request: Request, server: UUID) -> Response:
        """One server as it is now."""
        found = selectors.servers().filter(pk=server).first()
        if found is None:
            raise Http404("No server has this id.")
        return Response(ServerDetail(found).data)


class ServerEvents(RoleCall):
    """`GET /servers/{id}/events`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    @extend_schema(responses=EventList)
    def get(self, request: Request, server: UUID) -> Response:
        """The transitions of a server, oldest first; events outlive servers."""
        return Response(EventList({"items": selectors.events_of(server)[:500], "next": None}).data)
