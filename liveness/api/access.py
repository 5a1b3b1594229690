"""Who may make which call; the bases of all views of the API."""

from typing import Any

from django.db.models import QuerySet
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import OwnSettings
from controlplane.core.problems import Problem
from controlplane.core.rest import StrictSerializer, TextField, validate_body
from liveness.api.authentication import Credential
from liveness.errors import NotYourServer, TokenMissing, WrongNamespace, WrongRole
from liveness.models import DEFAULT_NAMESPACE, Role
from liveness.selectors.namespaces import reaches_instance, rows_within
from liveness.services import tokens
from liveness.services.tokens import ServerToken


def request_credential(request: Request) -> Credential:
    """The token a request came with. Raises TokenMissing."""
    if not isinstance(request.auth, Credential):
        raise TokenMissing
    return request.auth


GUARDED = {
    "server": ("liveness.models.Server", "liveness.errors.NoSuchServer"),
    "job": ("jobs.models.WorkerJob", "jobs.errors.JobUnknown"),
    "execution": ("jobs.models.Execution", "jobs.errors.ExecutionUnknown"),
    "trigger": ("jobs.models.Trigger", "jobs.errors.TriggerUnknown"),
}
"""What is of a namespace, as addresses name it. By name: some are of the floor above."""


class NamespaceQuery(StrictSerializer):
    """In the query of a call that makes something."""

    namespace = TextField(required=False, max_length=90, help_text="Of what is made; for who reaches several.")

    @classmethod
    def read(cls, named: str) -> str:
        namespace: str = validate_body(cls, {"namespace": named})["namespace"]
        return namespace


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

    group = "Workers and other servers"
    server_token: ServerToken

    def describe_callers(self, method: str) -> str:
        return "the server in the address, with the token that its registration answered with"

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


STAFF = "; staff who are signed in count as a viewer, with the permissions of all actions as an operator"


class RoleCall(ApiCall):
    """A call for API tokens of some roles. A view says which: `roles = {"POST": {Role.CLIENT}}`."""

    roles: dict[str, set[Role]] = {}
    is_about_instance = False
    """It is about no namespace, but about the whole control plane: for those who reach the namespace `default`."""
    namespaces: frozenset[str] | None
    """Those that this call is about. None: all."""
    namespace: str
    """Of what this call makes."""

    def describe_callers(self, method: str) -> str:
        roles = sorted(self.roles.get(method, ()))
        return f"a token of the role {' or '.join(roles)}{STAFF if {Role.VIEWER, Role.OPERATOR} & set(roles) else ''}"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        allowed = self.roles.get("GET" if request.method == "HEAD" else request.method or "")
        if allowed is None:
            return  # no such method: Django REST Framework answers 405
        credential = request_credential(request)
        self.token = credential.api_token
        if self.token.role not in allowed:
            names = ", ".join(sorted(allowed))
            raise WrongRole(f"This needs a token of role {names}; this one is of role {self.token.role}.")
        self.choose_namespaces(credential, request.query_params.get("namespace"))
        self.refuse_hidden(kwargs)

    def choose_namespaces(self, credential: Credential, named: str | None) -> None:
        """Raises WrongNamespace where the caller names one that he does not reach, or calls about all of them."""
        reached = credential.namespaces
        if self.is_about_instance and not reaches_instance(reached):
            raise WrongNamespace(f"What is about the whole control plane needs a token of {DEFAULT_NAMESPACE}.")
        if named is not None:
            named = NamespaceQuery.read(named)
            if reached is not None and named not in reached:
                raise WrongNamespace(f"This caller reaches the namespace {' and '.join(sorted(reached))} only.")
            reached = frozenset({named})
        self.namespaces, self.namespace = reached, named or credential.namespace

    def refuse_hidden(self, named: dict[str, Any]) -> None:
        """Raises what says that it is not there, where the address names what is of another namespace. A client's calls
        reach its own alone."""
        if self.namespaces is None or self.token.role == Role.CLIENT:
            return
        for word in GUARDED.keys() & named.keys():
            model, unknown = map(import_string, GUARDED[word])
            if model.objects.filter(pk=named[word]).exclude(namespace__in=self.namespaces).exists():
                raise unknown

    def within_namespaces(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Of these rows those that the caller reaches."""
        return rows_within(self.namespaces, rows)
