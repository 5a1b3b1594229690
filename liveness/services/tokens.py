"""Tokens: made, checked and revoked.

API tokens are 256 random bits; only their SHA-256 is kept. Server tokens are signed, so that
checking one needs no query, and the same registration yields the same token.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.core import signing
from django.db.models import F, Q
from django.utils.crypto import salted_hmac

from controlplane.schema import ClockTimestamp
from liveness.errors import TokenExpired, TokenRefused, TokenRevoked
from liveness.models import ApiToken, Role, Server

API_PREFIX = "cp_"
SERVER_PREFIX = "cps_"
SALT = "liveness.server-token"
# Not a SHA-256, so there is no text that this token would let in; and unique, so that it is made once.
OWN_DIGEST = b"control plane"
"""Of the token with which the control plane's own processes are registered."""


@dataclass(frozen=True)
class ServerToken:
    """What a server token says of its bearer."""

    server: UUID
    version: int


def create(name: str, role: str, expires_in: float | None = None) -> str:
    """A new API token; its text is shown this once. `expires_in` is in seconds."""
    text = API_PREFIX + secrets.token_urlsafe(32)
    expires_at = None if expires_in is None else ClockTimestamp() + timedelta(seconds=expires_in)
    ApiToken.objects.create(name=name, role=Role(role), prefix=text[:11], digest=digest(text), expires_at=expires_at)
    return text


def of_session(user: int, name: str, role: str) -> ApiToken:
    """Whose the jobs are that somebody submits who is signed in: a token that nobody can say, for its digest is that of
    no text."""
    unsaid = salted_hmac("liveness.session", str(user), algorithm="sha256").digest()
    token, _ = ApiToken.objects.get_or_create(digest=unsaid, defaults={"name": name, "role": role, "prefix": "session"})
    return token


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def find(text: str) -> ApiToken:
    """The API token with this text. Raises TokenRefused, TokenExpired or TokenRevoked."""
    token = ApiToken.objects.annotate(expired=Q(expires_at__lte=ClockTimestamp())).filter(digest=digest(text)).first()
    if token is None:
        raise TokenRefused
    if token.revoked_at:
        raise TokenRevoked(f"The token {token.prefix}… was revoked at {token.revoked_at}.")
    if token.expired:
        raise TokenExpired(f"The token {token.prefix}… expired at {token.expires_at}.")
    return token


def revoke(prefix: str, *, with_servers: bool = False) -> int:
    """Revoke the API tokens that begin with `prefix`, from the next request on; how many.

    Servers that registered with them live on, unless `with_servers` ends their tokens as well.
    """
    tokens = ApiToken.objects.filter(prefix__startswith=prefix, revoked_at=None)
    ids = list(tokens.values_list("id", flat=True))
    if with_servers:
        Server.objects.filter(token_id__in=ids).update(token_version=F("token_version") + 1)
    return ApiToken.objects.filter(id__in=ids).update(revoked_at=ClockTimestamp())


def for_server(server: UUID, version: int, registrar: UUID) -> str:
    """The server token of a registration: the same for the same."""
    return SERVER_PREFIX + signing.Signer(salt=SALT).sign(f"{server.hex}.{version}.{registrar.hex}")


def read_server_token(text: str) -> ServerToken:
    """What a server token says. Raises TokenRefused when it was not signed here."""
    try:
        server, version, _ = signing.Signer(salt=SALT).unsign(text.removeprefix(SERVER_PREFIX)).split(".")
    except (signing.BadSignature, ValueError):
        raise TokenRefused(
            "This server token was not made by this control plane (or its SECRET_KEY has changed)."
        ) from None
    return ServerToken(UUID(server), int(version))
