"""Whose a call is, as far as that can be known before it has a thread: without the database."""

import re
from collections import OrderedDict
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

from django.conf import settings

from controlplane.core.problems import Problem
from controlplane.serving.seats import Call, Lane
from liveness.services import tokens

SERVER_CALL = re.compile(r"/api/v1/servers/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(heartbeat|claims|reports)")
PROBES = ("/livez", "/readyz", "/healthz")
SIGN_IN = "/admin/login/"
REMEMBERED = 10_000

read_token = lru_cache(maxsize=4096)(tokens.read_server_token)


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
        path, address = scope.path, scope.client.rpartition(":")[0]
        authorization: str = scope.headers.get("authorization", "")
        if (server := server_of(path, authorization)) is not None:
            return Call(Lane.CLAIM if path.endswith("/claims") else Lane.HEARTBEAT_OR_REPORT, server)
        if path in PROBES:
            return Call(Lane.PROBE_OR_SIGN_IN, "probe", is_strange=True)
        if path == SIGN_IN and scope.method == "POST":
            return Call(Lane.PROBE_OR_SIGN_IN, "sign-in", is_strange=True)
        digest = credential(authorization, scope.headers)
        if digest in self._good:
            return Call(Lane.GENERAL, digest.hex())
        return Call(Lane.GENERAL, f"address {address}", is_strange=True)

    def learn(self, scope: Scope, status: int) -> None:
        """The answer to a call says whether its token or session is good."""
        if scope.path.startswith("/api/v1/"):
            is_good = status < 300
        elif scope.path.startswith("/admin/") and scope.path != SIGN_IN:
            is_good = status == 200
        else:
            return
        digest = credential(scope.headers.get("authorization", ""), scope.headers)
        if is_good:
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > REMEMBERED:
                self._good.popitem(last=False)
        elif status == 401:
            self._good.pop(digest, None)


def server_of(path: str, authorization: str) -> str | None:
    """The server that may make this call of its own, by its well-signed token."""
    match = SERVER_CALL.fullmatch(path)
    if match is None or not authorization.startswith(f"Bearer {tokens.SERVER_PREFIX}"):
        return None
    try:
        token = read_token(authorization.removeprefix("Bearer "))
    except Problem:
        return None
    return match[1] if str(token.server) == match[1] else None


def credential(authorization: str, headers: Any) -> bytes:
    """The digest of the token or else of the session that a request came with."""
    if authorization:
        return sha256(authorization.encode()).digest()
    sessions = f"{settings.SESSION_COOKIE_NAME}="
    cookies = (cookie.strip() for cookie in headers.get("cookie", "").split(";"))
    return sha256(next((cookie for cookie in cookies if cookie.startswith(sessions)), "").encode()).digest()
