"""Who may make which call; the bases of all views of the API."""

from typing import Any

from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import OwnSettings
from controlplane.core.problems import Problem
from liveness.api.authentication import Credential
from liveness.errors import NotYourServer, TokenMissing, WrongRole
from liveness.models import Role
from liveness.services import tokens
from liveness.services.tokens import ServerToken


def request_credential(request: Request) -> Credential:
    """The token a request came with. Raises TokenMissing."""
    if not isinstance(request.auth, Credential):
        raise TokenMissing
    return request.auth


UNREADABLE = (400, 413, 415)
"""Statuses that blame the body."""


class ApiCall(OwnSettings):
    """A call by whoever has a token, or a session of staff. By name: sessions are of the floor above."""

    authenticators = ("liveness.api.authentication.Bearer", "jobs.api.sessions.StaffSession")

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [import_string(name)() for name in self.authenticators]


class TokenFirst(ApiCall):
    """A call whose token is judged in its own statement, so after its body was read; but who sends a bad body with a
    bad token hears of the token."""

    def judge_token(self, request: Request) -> None:
        """Raises a Problem when the token is not good for this call."""
        raise NotImplementedError

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, APIException) and exc.status_code in UNREADABLE:
            try:
                self.judge_token(self.request)
            except Problem as refused:
                exc = refused
        return super().handle_exception(exc)


class ServerCall(TokenFirst):
    """A call that only the server in its address may make, with its server token: checked without a query."""

    server_token: ServerToken

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        text = request_credential(request).text
        if not text.startswith(tokens.SERVER_PREFIX):
            raise NotYourServer("This call needs the server token that the registration answered with.")
        self.server_token = tokens.read_server_token(text)
        if self.server_token.server != kwargs["server"]:
            raise NotYourServer

    def judge_token(self, request: Request) -> None:
        tokens.refuse_revoked(self.server_token)


class RoleCall(ApiCall):
    """A call for API tokens of some roles. A view says which: `roles = {"POST": {Role.CLIENT}}`."""

    roles: dict[str, set[Role]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        allowed = self.roles.get("GET" if request.method == "HEAD" else request.method or "")
        if allowed is None:
            return  # no such method: Django REST Framework answers 405
        credential = request_credential(request)
        self.token, self.namespace = credential.api_token, credential.namespace
        if self.token.role not in allowed:
            names = ", ".join(sorted(allowed))
            raise WrongRole(f"This needs a token of role {names}; this one is of role {self.token.role}.")
