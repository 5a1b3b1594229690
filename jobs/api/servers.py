"""`/servers`: the list of them, and their registration, which tells a worker all that it is to keep to."""

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import extend_schema
from controlplane.core.paging import paged
from jobs.api import examples
from jobs.conf import conf
from liveness.api.access import RoleCall, TokenFirst, request_credential
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


class Servers(TokenFirst, RoleCall):
    """`GET /servers` and `POST /servers`.

    The token of a registration is judged in the statement that registers: one round trip.
    """

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}

    def describe_callers(self, method: str) -> str:
        return f"a token of the role {Role.WORKER}" if method == "POST" else super().describe_callers(method)

    @property
    def call_name(self) -> str:
        """In the log, where the call is refused."""
        return "Registration" if self.request.method == "POST" else "Servers"

    @extend_schema(operation_id="v1_servers_list", parameters=[ServerFilter], responses=ServerList)
    def get(self, request: Request) -> Response:
        """Servers, latest first, a page at a time."""
        query = ServerFilter(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(paged(ServerList, query.page(self.within_namespaces(servers_with_attempts()))))

    @extend_schema(
        request=RegistrationRequest,
        responses={201: RegistrationAnswer, 200: RegistrationAnswer},
        examples=[examples.REGISTRATION],
    )
    def post(self, request: Request) -> Response:
        """Register a process; the same instance id again finds the same server."""
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
            raise WrongRole("Servers register with an API token of role worker, not with a server token or a session.")
        return text

    def judge_token(self, request: Request) -> None:
        if request.method == "POST":
            registration.refuse_role(tokens.find_token(self.token_text(request)))
