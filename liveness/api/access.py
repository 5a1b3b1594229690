"""Base classes of the API views. They check whether the caller may make the call."""

from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.calls import OwnSettings
from controlplane.core.media_types import ResultParser
from controlplane.core.problems import Problem
from controlplane.core.rest import StrictSerializer, TextField, validate_body
from liveness.api.authentication import Credential
from liveness.errors import NotYourServer, TokenMissing, WrongNamespace, WrongRole
from liveness.models import DEFAULT_NAMESPACE, Role
from liveness.selectors.namespaces import NO_NAMESPACE, reaches_instance, rows_within
from liveness.services import tokens
from liveness.services.tokens import ServerToken


def request_credential(request: Request) -> Credential:
    """Return the credential of a request. Raise TokenMissing if it has none."""
    if not isinstance(request.auth, Credential):
        raise TokenMissing
    return request.auth


GUARDED = {
    "server": ("liveness.models.Server", "liveness.errors.NoSuchServer"),
    "job": ("jobs.models.WorkerJob", "jobs.errors.JobUnknown"),
    "execution": ("jobs.models.Execution", "jobs.execution_errors.ExecutionUnknown"),
    "trigger": ("jobs.models.Trigger", "jobs.trigger_errors.TriggerUnknown"),
}
"""Model and not-found error of each kind of object in a URL. They are import paths, because this app must not import
jobs."""


class NamespaceQuery(StrictSerializer):
    """Query parameters of a call that creates an object."""

    namespace = TextField(
        required=False, max_length=90, help_text="Namespace of the new object, for callers with access to several."
    )

    @classmethod
    def read(cls, named: str) -> str:
        namespace: str = validate_body(cls, {"namespace": named})["namespace"]
        return namespace


UNREADABLE = (400, 413, 415)
"""HTTP statuses of errors in the request body."""


class ApiCall(OwnSettings):
    """API call by a token or by a signed-in staff user.

    The authenticators are import paths, because this app must not import jobs. Calls that check their token in their
    SQL statement override `check_token`.
    """

    authenticators = ("liveness.api.authentication.Bearer", "jobs.api.sessions.StaffSession")

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [import_string(name)() for name in self.authenticators]

    def check_token(self, request: Request) -> None:
        """Raise a Problem if the token is not valid. If the body is bad too, the error is about the token."""

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, APIException) and exc.status_code in UNREADABLE:
            try:
                self.check_token(self.request)
            except Problem as refused:
                exc = refused
        return super().handle_exception(exc)


class ServerCall(ApiCall):
    """API call that only the server in its URL may make.

    The check of the server token needs no query. The SQL statement of the call checks that it is not revoked.
    """

    parser_classes = [ResultParser]
    group = "Workers and other servers"
    server_token: ServerToken

    def describe_callers(self, method: str) -> str:
        return "the server in the URL, with the token that its registration returned"

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        text = request_credential(request).text
        if not text.startswith(tokens.SERVER_PREFIX):
            raise NotYourServer("The call needs the server token that the registration returned.")
        self.server_token = tokens.read_server_token(text)
        if self.server_token.server != kwargs["server"]:
            raise NotYourServer

    def check_token(self, request: Request) -> None:
        tokens.refuse_revoked(self.server_token)


STAFF = "; signed-in staff count as viewers, or as operators if they have the permissions of all actions"


class RoleCall(ApiCall):
    """API call that needs an API token of certain roles. Each view sets them: `roles = {"POST": {Role.CLIENT}}`."""

    roles: dict[str, set[Role]] = {}
    is_about_instance = False
    """True if the call is about the whole control plane. Its callers need access to the namespace `default`."""
    namespaces: frozenset[str] | None
    """Namespaces that this call is about; None means all."""
    namespace: str
    """Namespace of objects that this call creates."""

    def describe_callers(self, method: str) -> str:
        roles = sorted(self.roles.get(method, ()))
        return f"a token of the role {' or '.join(roles)}{STAFF if {Role.VIEWER, Role.OPERATOR} & set(roles) else ''}"

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        allowed = self.roles.get("GET" if request.method == "HEAD" else request.method or "")
        if allowed is None:
            return  # no such method: Django REST Framework responds with 405
        credential = request_credential(request)
        self.token = credential.api_token
        if self.token.role not in allowed:
            names = ", ".join(sorted(allowed))
            raise WrongRole(f"The call needs a token of the role {names}; this one has the role {self.token.role}.")
        self.choose_namespaces(credential, request.query_params.get("namespace"))
        self.refuse_hidden(kwargs)

    def choose_namespaces(self, credential: Credential, named: str | None) -> None:
        """Set the namespaces of the call. Raise WrongNamespace if the caller lacks access.

        `named` is the namespace in the query, if there is one.
        """
        reached = credential.namespaces
        if reached is not None and not reached:
            raise WrongNamespace(NO_NAMESPACE)
        if self.is_about_instance and not reaches_instance(reached):
            raise WrongNamespace(
                f"The call is about the whole control plane and needs a token of the namespace {DEFAULT_NAMESPACE}."
            )
        if named is not None:
            named = NamespaceQuery.read(named)
            if reached is not None and named not in reached:
                raise WrongNamespace(
                    f"The caller has no access to the namespace {named}, only to {' and '.join(sorted(reached))}."
                )
            reached = frozenset({named})
        self.namespaces, self.namespace = reached, named or credential.namespace

    def refuse_hidden(self, named: dict[str, Any]) -> None:
        """Raise a 404 if an object in the URL does not exist, or is in a namespace without access.

        Both cases get the same response, before the body is read. Otherwise callers could find out which ids exist in
        other namespaces. A client reaches only its own jobs and executions anyway.
        """
        if self.token.role == Role.CLIENT:
            return
        for word in GUARDED.keys() & named.keys():
            model, unknown = map(import_string, GUARDED[word])
            if not self.is_there(model, named[word]):
                raise unknown

    def is_there(self, model: type[Model], id: UUID) -> bool:
        """Return True if a row with this id exists in the caller's namespaces."""
        return self.within_namespaces(model._default_manager.filter(pk=id)).exists()

    def within_namespaces(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Filter rows by the caller's namespaces."""
        return rows_within(self.namespaces, rows)
