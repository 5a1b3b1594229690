"""Authentication of callers: by a server token, or by an API token with a role."""

from functools import cached_property
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from controlplane.core.bearer import read_bearer
from liveness.errors import TokenRefused, WrongRole
from liveness.models import ApiToken
from liveness.services import tokens


class Credential:
    """Bearer token of a request. It is looked up on first use, because hot calls check it in their SQL statement."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def api_token(self) -> ApiToken:
        """Return the API token. Raise WrongRole, TokenRefused, TokenExpired or TokenRevoked."""
        if self.text.startswith(tokens.SERVER_PREFIX):
            raise WrongRole(
                "A server token is valid only for calls about its own server. This call needs an API token."
            )
        return tokens.find_token(self.text)

    @property
    def person(self) -> Any:
        """Return the signed-in user who calls, or None for a token."""
        return None

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Return the namespaces that the caller has access to; None means all."""
        return frozenset({self.api_token.namespace})

    @property
    def namespace(self) -> str:
        """Return the namespace of new objects if the caller names none."""
        return self.api_token.namespace

    @property
    def submitter(self) -> ApiToken:
        """Return the token that owns the jobs that the caller submits."""
        return self.api_token


class Bearer(BaseAuthentication):
    """Authentication by `Authorization: Bearer TOKEN`."""

    def authenticate(self, request: Request) -> tuple[None, Credential] | None:
        header = request.headers.get("Authorization", "")
        if not header.strip():
            return None
        if not (text := read_bearer(header)):
            raise TokenRefused("The Authorization header must be `Bearer TOKEN`.")
        return None, Credential(text)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
