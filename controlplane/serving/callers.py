"""Whose a call is, as far as that can be known before it has a thread: without the database."""

import re
from collections import OrderedDict
from hashlib import sha256
from typing import Any, Protocol

from django.conf import settings

from controlplane.core.problems import Problem
from controlplane.serving.seats import Call, Lane
from liveness.services import tokens
from liveness.services.tokens import ServerToken

SERVER_CALL = re.compile(
    r"/api/v1/servers/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(heartbeat|claims|hints|reports)"
)
PROBES = ("/livez", "/readyz", "/healthz")
SIGN_IN = "/admin/login/"
REMEMBERED = 10_000


class Scope(Protocol):
    """What granian knows of a request, of the protocol RSGI."""

    proto: str
    http_version: str
    server: str
    client: str
    scheme: str
    method: str
    path: str
    query_string: str
    authority: str | None
    headers: Any


class Callers:
    """Remembers the tokens and sessions that were good lately: an invented one gets no share of its own."""

    def __init__(self) -> None:
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def call(self, scope: Scope) -> Call:
        path = scope.path
        authorization: str = scope.headers.get("authorization", "")
        if (token := token_of_server(path, authorization)) is not None:
            lane = Lane.CLAIM if path.endswith(("/claims", "/hints")) else Lane.HEARTBEAT_OR_REPORT
            return Call(lane, token.server_text, token=token)
        if path in PROBES:
            return Call(Lane.PROBE_OR_SIGN_IN, "probe", is_strange=True)
        if path == SIGN_IN and scope.method == "POST":
            return Call(Lane.PROBE_OR_SIGN_IN, "sign-in", is_strange=True)
        digest = digest_of_credential(scope.headers)
        if digest in self._good:
            return Call(Lane.GENERAL, digest.hex())
        return Call(Lane.GENERAL, f"address {scope.client.rpartition(':')[0]}", is_strange=True)

    def learn(self, scope: Scope, status: int, *, is_signed_in: bool) -> None:
        """The answer to a call says whether its token is good; of a session, that somebody is signed in by it, for a
        page may be open to everybody."""
        has_token = scope.path.startswith("/api/v1/") and "authorization" in scope.headers
        digest = digest_of_session(scope.headers) if is_signed_in else digest_of_credential(scope.headers)
        if is_signed_in or (has_token and status < 300):
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > REMEMBERED:
                self._good.popitem(last=False)
        elif status == 401:
            self._good.pop(digest, None)


def token_of_server(path: str, authorization: str) -> ServerToken | None:
    """The well-signed token of the server that makes this call of its own."""
    match = SERVER_CALL.fullmatch(path)
    if match is None or not authorization.startswith(f"Bearer {tokens.SERVER_PREFIX}"):
        return None
    try:
        token = tokens.read_server_token(authorization.removeprefix("Bearer "))
    except Problem:
        return None
    return token if token.server_text == match[1] else None


def digest_of_credential(headers: Any) -> bytes:
    """Of the token that a request came with, or else of its session."""
    authorization: str = headers.get("authorization", "")
    return sha256(authorization.encode()).digest() if authorization else digest_of_session(headers)


def digest_of_session(headers: Any) -> bytes:
    sessions = f"{settings.SESSION_COOKIE_NAME}="
    cookies = (cookie.strip() for cookie in headers.get("cookie", "").split(";"))
    return sha256(next((cookie for cookie in cookies if cookie.startswith(sessions)), "").encode()).digest()
