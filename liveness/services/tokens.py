"""Create, check and revoke tokens.

API tokens have 256 random bits; only their SHA-256 is stored. Server tokens are signed, so a check needs no query. The
same registration always gets the same server token.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from itertools import starmap
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError
from django.utils.crypto import salted_hmac

from controlplane.core import database, signing_keys
from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.conf import conf
from liveness.errors import ServerUnknown, TokenCreatedBefore, TokenExpired, TokenRefused, TokenRevoked
from liveness.models import API_PREFIX, DEFAULT_NAMESPACE, OF_NAMESPACE, PROJECT_DIGEST, ApiToken, Role, Server
from liveness.services.action_events import ActionSubject, record_action
from liveness.sql import sql
from liveness.sql.rows.tokens import FoundToken

REMEMBERED_LIMIT = 10_000
"""Number of API tokens that a process remembers."""
remembered: OrderedDict[bytes, ApiToken] = OrderedDict()

SERVER_PREFIX = "cps_"
SALT = "liveness.server-token"


@dataclass(frozen=True)
class ServerToken:
    """Content of a server token. `replacement` is the token under the present key, if an earlier key signed it."""

    server: UUID
    version: int
    replacement: str | None = None

    @cached_property
    def server_text(self) -> str:
        return str(self.server)


@dataclass(frozen=True)
class Bounds:
    """Limits of the servers that a worker token may register; None means no limit."""

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
    id: UUID | None = None,
) -> str:
    """Create an API token and return its text, which is not stored.

    `expires_in` is in seconds; None means that it never expires. `by` is the operator who creates it. Raises
    TokenCreatedBefore if a token with the `id` exists.
    """
    if namespace != DEFAULT_NAMESPACE:
        make_permissions(namespace, DEFAULT_NAMESPACE)
    text = API_PREFIX + secrets.token_urlsafe(32)
    expires_at = None if expires_in is None else ClockTimestamp() + timedelta(seconds=expires_in)
    fields: dict[str, Any] = {**vars(bounds), **({} if id is None else {"pk": id})}
    try:
        created = ApiToken.objects.create(
            name=name,
            role=Role(role),
            namespace=namespace,
            prefix=text[:11],
            digest=digest_token(text),
            expires_at=expires_at,
            **fields,
        )
    except IntegrityError:
        if id is None:
            raise
        raise TokenCreatedBefore from None
    record_action("create_token", by, note, token_subject(created))
    return text


def make_permissions(*namespaces: str) -> None:
    """Create the permissions that give access to single namespaces."""
    content_type = ContentType.objects.get_for_model(Server)
    for name in namespaces:
        Permission.objects.get_or_create(
            content_type=content_type,
            codename=f"{OF_NAMESPACE}{name}",
            defaults={"name": f"Reaches the namespace {name}, and of the others those named too"},
        )


def get_session_token(user: int, name: str, role: str) -> ApiToken:
    """Return the token that owns the jobs of a signed-in user. No text has its digest, so nobody can call with it."""
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    present, *earlier = (salted_hmac("liveness.session", str(user), key, algorithm="sha256").digest() for key in keys)
    if earlier and not ApiToken.objects.filter(digest=present).exists():
        ApiToken.objects.filter(digest__in=earlier).update(digest=present)
    token, _ = ApiToken.objects.get_or_create(
        digest=present, defaults={"name": name, "role": role, "prefix": "session"}
    )
    return token


def get_project_token() -> ApiToken:
    """Return the token that owns the jobs of the project's own code. No text has its digest."""
    if row := _read_token(PROJECT_DIGEST):
        return _as_token(row)
    token, _ = ApiToken.objects.get_or_create(
        digest=PROJECT_DIGEST, defaults={"name": "this project", "role": Role.CLIENT, "prefix": "project"}
    )
    return token


def digest_token(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _read_token(digest: bytes) -> FoundToken | None:
    # This statement only reads. Without `reading()` it would count as a possible change.
    with database.reading():
        return next(iter(sql.find_api_token.fetch_rows(digest=digest)), None)


def _as_token(row: FoundToken) -> ApiToken:
    token = ApiToken(**{field: value for field, value in row._asdict().items() if field != "is_expired"})
    token._state.adding = False
    return token


def find_token(text: str) -> ApiToken:
    """Return the API token with this text. Raise TokenRefused, TokenExpired or TokenRevoked."""
    digest = digest_token(text)
    row = _read_token(digest)
    if row is None:
        raise TokenRefused
    token = _as_token(row)
    if token.revoked_at:
        raise TokenRevoked(f"The token {token.prefix}… was revoked at {token.revoked_at}.")
    if row.is_expired:
        raise TokenExpired(f"The token {token.prefix}… expired at {token.expires_at}.")
    remembered[digest] = token
    remembered.move_to_end(digest)
    if len(remembered) > REMEMBERED_LIMIT:
        remembered.popitem(last=False)
    return token


def recall_token(text: str) -> ApiToken | None:
    """Return the API token from this process's cache, or None.

    The caller's SQL statement must check that the token is still valid. Nothing else of a token ever changes.
    """
    return remembered.get(digest_token(text))


def token_subject(token: ApiToken) -> ActionSubject:
    return ActionSubject(states.Subject.TOKEN, token.pk, f"{token.name} ({token.prefix}…)")


def list_signing_keys() -> list[tuple[str, str]]:
    """Return (setting's name, key) of each signing key of server tokens. The first key signs; all are accepted."""
    earlier = [
        ('LIVENESS["SIGNING_KEY_FALLBACKS"]', key) for key in signing_keys.split_keys(conf().signing_key_fallbacks)
    ]
    if (key := conf().signing_key) is not None:
        return [('LIVENESS["SIGNING_KEY"]', key), *earlier]
    of_django = [("SECRET_KEY_FALLBACKS", key) for key in settings.SECRET_KEY_FALLBACKS]
    return [("SECRET_KEY", settings.SECRET_KEY), *earlier, *of_django]


def build_signer(keys: Sequence[tuple[str, str]]) -> signing.Signer:
    """Return a signer that signs with the first of these keys and accepts all of them.

    Raise ImproperlyConfigured for a weak key: the owner of one token could find it, and forge tokens of all servers.
    """
    for weakness in filter(None, starmap(signing_keys.explain_weak_key, keys)):
        raise ImproperlyConfigured(weakness)
    (_, key), *earlier = keys
    return signing.Signer(key=key, salt=SALT, fallback_keys=[key for _, key in earlier])


def sign_server_token(server: UUID, version: int, registrar: UUID) -> str:
    """Return the server token of a registration. The same arguments always give the same token."""
    return SERVER_PREFIX + build_signer(list_signing_keys()).sign(f"{server.hex}.{version}.{registrar.hex}")


def refuse_revoked(token: ServerToken) -> None:
    """Raise ServerUnknown or TokenRevoked. Hot calls check this in their own statement instead."""
    version = Server.objects.filter(pk=token.server).values_list("token_version", flat=True).first()
    if version is None:
        raise ServerUnknown
    if version != token.version:
        raise TokenRevoked("The server token was revoked. Register again.")


@lru_cache(maxsize=20_000)  # cached, because a server sends the same token with each call
def read_server_token(text: str) -> ServerToken:
    """Return the content of a server token. Raise TokenRefused if none of our keys signed it."""
    try:
        signer = build_signer(list_signing_keys())
        content = signer.unsign(text.removeprefix(SERVER_PREFIX))
        server, version, _ = content.split(".")
        present = SERVER_PREFIX + signer.sign(content)
        return ServerToken(UUID(server), int(version), None if present == text else present)
    except (signing.BadSignature, ValueError):
        raise TokenRefused(
            "The server token was not signed by this control plane, or the SECRET_KEY has changed. Register again."
        ) from None
