"""Tokens: made, checked and revoked.

API tokens are 256 random bits; only their SHA-256 is kept. Server tokens are signed, so that
checking one needs no query, and the same registration yields the same token.
"""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from uuid import UUID

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.db.models import F
from django.utils.crypto import salted_hmac

from controlplane.core import database
from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.prepared import fetch_prepared_rows
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.conf import conf
from liveness.errors import ServerUnknown, TokenExpired, TokenRefused, TokenRevoked
from liveness.models import DEFAULT_NAMESPACE, OF_NAMESPACE, PROJECT_DIGEST, ApiToken, Role, Server
from liveness.services import transitions
from liveness.services.action_events import Subject, record_action
from liveness.sql import sql
from liveness.sql.rows.tokens import FoundToken
from liveness.states import Mover, ServerState

API_PREFIX = "cp_"
SERVER_PREFIX = "cps_"
SALT = "liveness.server-token"


@dataclass(frozen=True)
class ServerToken:
    """What a server token says of its bearer."""

    server: UUID
    version: int

    @cached_property
    def server_text(self) -> str:
        return str(self.server)


@dataclass(frozen=True)
class Bounds:
    """What may be registered with a worker token: what is None is not bound."""

    types: list[str] | None = None
    tags: list[str] | None = None
    cluster: str | None = None
    max_servers: int | None = None


@retried_atomic
def create_token(
    name: str,
    role: str,
    expires_in: float | None = None,
    bounds: Bounds = Bounds(),
    by: str = "",
    note: str = "",
    namespace: str = DEFAULT_NAMESPACE,
) -> str:
    """A new API token; its text is shown this once. `expires_in` is in seconds; `by` is the operator who wants it."""
    if namespace != DEFAULT_NAMESPACE:
        make_permissions(namespace, DEFAULT_NAMESPACE)
    text = API_PREFIX + secrets.token_urlsafe(32)
    expires_at = None if expires_in is None else ClockTimestamp() + timedelta(seconds=expires_in)
    created = ApiToken.objects.create(
        name=name,
        role=Role(role),
        namespace=namespace,
        prefix=text[:11],
        digest=digest_token(text),
        expires_at=expires_at,
        **vars(bounds),
    )
    record_action("create_token", by, note, token_subject(created))
    return text


def make_permissions(*namespaces: str) -> None:
    """What a group is given to reach some namespaces, and no others."""
    content_type = ContentType.objects.get_for_model(Server)
    for name in namespaces:
        Permission.objects.get_or_create(
            content_type=content_type,
            codename=f"{OF_NAMESPACE}{name}",
            defaults={"name": f"Reaches the namespace {name}, and of the others those named too"},
        )


def get_session_token(user: int, name: str, role: str) -> ApiToken:
    """Whose the jobs are that somebody submits who is signed in: a token that nobody can say, for its digest is that of
    no text."""
    session_digest = salted_hmac("liveness.session", str(user), algorithm="sha256").digest()
    token, _ = ApiToken.objects.get_or_create(
        digest=session_digest, defaults={"name": name, "role": role, "prefix": "session"}
    )
    return token


def get_project_token() -> ApiToken:
    """Whose the jobs are that the code of the project itself submits: a token that nobody can say, as those of
    sessions."""
    if row := _read_token(PROJECT_DIGEST):
        return _as_token(row)
    token, _ = ApiToken.objects.get_or_create(
        digest=PROJECT_DIGEST, defaults={"name": "this project", "role": Role.CLIENT, "prefix": "project"}
    )
    return token


def digest_token(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _read_token(digest: bytes) -> FoundToken | None:
    # In several statements at once, which otherwise counts as what may change something.
    with database.reading():
        return next(iter(fetch_prepared_rows(sql.find_api_token, digest=digest)), None)


def _as_token(row: FoundToken) -> ApiToken:
    token = ApiToken(**{field: value for field, value in row._asdict().items() if field != "is_expired"})
    token._state.adding = False
    return token


def find_token(text: str) -> ApiToken:
    """The API token with this text. Raises TokenRefused, TokenExpired or TokenRevoked."""
    row = _read_token(digest_token(text))
    if row is None:
        raise TokenRefused
    token = _as_token(row)
    if token.revoked_at:
        raise TokenRevoked(f"The token {token.prefix}… was revoked at {token.revoked_at}.")
    if row.is_expired:
        raise TokenExpired(f"The token {token.prefix}… expired at {token.expires_at}.")
    return token


def revoke_tokens(prefix: str, by: str, note: str = "", *, with_servers: bool = False) -> tuple[int, int]:
    """Revoke the API tokens that begin with `prefix`, from the next request on; how many. The servers that registered
    with them, or with those that were revoked before, live on, or are ended; how many are."""
    revoked = revoke_valid_tokens(prefix, by, note)
    # Only now: nothing registers with them any more.
    return len(revoked), end_servers(prefix, by, note, revoked) if with_servers else 0


@retried_atomic
def revoke_valid_tokens(prefix: str, by: str, note: str) -> list[ApiToken]:
    valid = ApiToken.objects.filter(prefix__startswith=prefix, revoked_at=None)
    revoked = list(valid.select_for_update(no_key=True).order_by("pk"))
    ApiToken.objects.filter(pk__in=[token.pk for token in revoked]).update(revoked_at=ClockTimestamp())
    for token in revoked:
        record_action("revoke_token", by, note, token_subject(token))
    return revoked


@retried_atomic
def end_servers(prefix: str, by: str, note: str, noted: Collection[ApiToken]) -> int:
    """End the tokens of all servers that were registered with the revoked tokens that begin with `prefix`; how many.

    Those that are alive are DISCONNECTED, so that what they hold moves as soon as they must have stopped it, and no
    brake takes their silence for an outage. Of tokens that were revoked before there is an event, of `noted` there is.
    """
    registered = Server.objects.filter(token__prefix__startswith=prefix, token__revoked_at__isnull=False)
    servers = registered.select_related("token")
    ending = servers.exclude(state__in=states.RETIRED).select_for_update(no_key=True, of=("self",)).order_by("pk")
    ended = list(ending)
    Server.objects.filter(pk__in=[server.pk for server in ended]).update(token_version=F("token_version") + 1)
    for server in ended:
        if server.state in states.ALIVE:
            reason = "the token that it registered with was revoked"
            transitions.change_state(server, ServerState.DISCONNECTED, Mover.OPERATOR, actor=by, reason=reason)
    for token in {server.token for server in ended} - {*noted}:
        record_action("end_servers", by, note, token_subject(token))
    return len(ended)


def token_subject(token: ApiToken) -> Subject:
    return Subject(states.Subject.TOKEN, token.pk, f"{token.name} ({token.prefix}…)")


def build_signer() -> signing.Signer:
    if (key := conf().signing_key) is None:
        return signing.Signer(salt=SALT)
    return signing.Signer(key=key, salt=SALT, fallback_keys=[])


def sign_server_token(server: UUID, version: int, registrar: UUID) -> str:
    """The server token of a registration: the same for the same."""
    return SERVER_PREFIX + build_signer().sign(f"{server.hex}.{version}.{registrar.hex}")


def refuse_revoked(token: ServerToken) -> None:
    """Raises ServerUnknown or TokenRevoked; the hot calls find that out in their own statement."""
    version = Server.objects.filter(pk=token.server).values_list("token_version", flat=True).first()
    if version is None:
        raise ServerUnknown
    if version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")


@lru_cache(maxsize=20_000)  # a server says the same for as long as it lives
def read_server_token(text: str) -> ServerToken:
    """What a server token says. Raises TokenRefused when it was not signed here."""
    try:
        server, version, _ = build_signer().unsign(text.removeprefix(SERVER_PREFIX)).split(".")
    except (signing.BadSignature, ValueError):
        raise TokenRefused(
            "This server token was not made by this control plane (or its SECRET_KEY has changed)."
        ) from None
    return ServerToken(UUID(server), int(version))
