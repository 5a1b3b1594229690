"""Who calls: a server with its server token, or the bearer of an API token with its role."""

from functools import cached_property

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from liveness.errors import TokenRefused, WrongRole
from liveness.models import ApiToken
from liveness.services import tokens


class Credential:
    """The bearer token of a request. It is looked up on first use only: the hot calls judge it in their statement."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def api_token(self) -> ApiToken:
        """Raises TokenRefused, TokenExpired, TokenRevoked."""
        if self.text.startswith(tokens.SERVER_PREFIX):
            raise WrongRole(
                "A server token is valid for calls about its own server only; this call needs an API token."
            )
        return tokens.find_token(self.text)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Those that its bearer reaches. None: all."""
        return frozenset({self.api_token.namespace})

    @property
    def namespace(self) -> str:
        """Of what is made with it, where its bearer names none."""
        return self.api_token.namespace

    @property
    def submitter(self) -> ApiToken:
        """Whose the jobs are that are submitted with it."""
        return self.api_token


class Bearer(BaseAuthentication):
    """`Authorization: Bearer TOKEN`."""

    def authenticate(self, request: Request) -> tuple[None, Credential] | None:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            return None
        if scheme.lower() != "bearer" or not text.strip():
            raise TokenRefused("The Authorization header must be `Bearer TOKEN`.")
        return None, Credential(text.strip())

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
