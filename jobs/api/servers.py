"""`/servers`: the list of servers, and registration. The response to a registration has the config for the worker."""

from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.media_types import ResultParser
from controlplane.core.paging import paged
from controlplane.core.rest import SecondsField, StrictSerializer, TextField, validate_body
from jobs.api import examples
from jobs.conf import conf
from jobs.services import server_ends
from liveness.api.access import RoleCall, ServerCall, request_credential
from liveness.api.serializers.registration import (
    RegistrationAnswer,
    RegistrationRequest,
    describe_config,
    to_registration,
)
from liveness.api.serializers.servers import ServerFilter, ServerList
from liveness.errors import WrongRole
from liveness.models import Role
from liveness.selectors.servers import servers_with_attempts
from liveness.services import registration, tokens


class ServersView(RoleCall):
    """`GET /servers` and `POST /servers`.

    The registering SQL statement also checks the token, so that a registration needs one round trip.
    """

    parser_classes = [ResultParser]
    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    def describe_callers(self, method: str) -> str:
        return f"a token of the role {Role.WORKER}" if method == "POST" else super().describe_callers(method)

    @property
    def call_name(self) -> str:
        """Return the name of the call in the log line of a refusal."""
        return "Registration" if self.request.method == "POST" else "Servers"

    @extend_schema(operation_id="v1_servers_list", parameters=[ServerFilter], responses=ServerList)
    def get(self, request: Request) -> Response:
        """Return servers, latest first, in pages."""
        query = ServerFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(ServerList, query.page(self.within_namespaces(servers_with_attempts()))))

    @extend_schema(
        request=RegistrationRequest,
        responses={201: RegistrationAnswer, 200: RegistrationAnswer},
        examples=[examples.REGISTRATION],
    )
    def post(self, request: Request) -> Response:
        """Register a process as a server. A retry with the same instance id returns the same server."""
        text = self.token_text(request)
        server, is_new = registration.register_server(text, to_registration(request.data))
        answer = {
            "id": server.id,
            "token": tokens.sign_server_token(server.id, server.token_version, server.token_id),
            "state": server.state,
            "fence_after_seconds": server.fence_after,
            "config": {
                **describe_config(server),
                "claimer_heartbeat_interval_seconds": conf().claimer_heartbeat_interval,
                "runner_heartbeat_interval_seconds": conf().runner_heartbeat_interval,
            },
        }
        return Response(answer, status=201 if is_new else 200)

    def token_text(self, request: Request) -> str:
        text = request_credential(request).text
        if not text or text.startswith(tokens.SERVER_PREFIX):
            raise WrongRole(
                "Servers register with an API token of the role worker, not with a server token or a session."
            )
        return text

    def check_token(self, request: Request) -> None:
        if request.method == "POST":
            registration.refuse_role(tokens.find_token(self.token_text(request)))


class EndRequest(StrictSerializer):
    reason = TextField(required=False, max_length=500, help_text="Reason of the end, for its timeline.")
    uptime_seconds = SecondsField(
        required=False, help_text="Seconds since the boot of the machine, if the server ran before that boot."
    )


class EndAnswer(serializers.Serializer):
    state = serializers.CharField(help_text="State of the server after it.")
    attempts = serializers.IntegerField(help_text="Number of attempts that were taken from the server.")


class EndServerView(ServerCall):
    """`POST /servers/{id}/ended`."""

    @extend_schema(request=EndRequest, responses=EndAnswer)
    def post(self, request: Request, server: UUID) -> Response:
        """Record that no process of this server runs any more. Its jobs are recovered at once."""
        body = validate_body(EndRequest, request.data)
        row, attempts = server_ends.end_server(
            self.server_token, body.get("reason") or server_ends.REASON, body.get("uptime_seconds")
        )
        return Response({"state": row.state, "attempts": attempts})
