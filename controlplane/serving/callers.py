"""Recognize callers before Django and the database are asked, so that limits apply to each caller."""

import re
from collections import OrderedDict
from hashlib import sha256

from django.conf import settings
from django.http import parse_cookie

from controlplane.core.bearer import read_bearer
from controlplane.core.problems import Problem
from controlplane.serving.request import PROBES, Request
from controlplane.serving.seats import Call, CallKind
from liveness.services import tokens
from liveness.services.tokens import ServerToken

SERVER_CALL = re.compile(
    r"/api/v1/servers/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(heartbeat|claims|hints|reports)"
)
SIGN_IN = "/admin/login/"
REMEMBERED = 10_000
"""Largest number of valid tokens and sessions that are remembered."""


class Callers:
    """Tokens and sessions that were valid recently. Other calls count as calls of strangers, by their address."""

    def __init__(self) -> None:
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def call(self, request: Request) -> Call:
        """Return the kind of a call, and the key under which it counts for limits."""
        bearer = read_bearer(request.by_name.get("authorization", ""))
        if bearer and (token := token_of_server(request.path, bearer)) is not None:
            kind = CallKind.CLAIM if request.path.endswith(("/claims", "/hints")) else CallKind.HEARTBEAT_OR_REPORT
            return Call(kind, token.server_text, token=token)
        if request.path in PROBES:
            return Call(CallKind.PROBE, f"probe {request.caller}", is_strange=True)
        if request.path == SIGN_IN and request.method == "POST":
            return Call(CallKind.SIGN_IN, f"sign-in {request.caller}", is_strange=True)
        digest = digest_of_token(bearer) if bearer else digest_of_session(request)
        if digest in self._good:
            return Call(CallKind.GENERAL, digest.hex())
        return Call(CallKind.GENERAL, f"address {request.caller}", is_strange=True)

    def learn(self, request: Request, status: int, *, is_signed_in: bool) -> None:
        """Remember the token or session of an answered call if it was valid, and forget it after a 401.

        The status shows whether a token is valid. A session is valid only if the page found a signed-in user, because
        some pages are public.
        """
        bearer = read_bearer(request.by_name.get("authorization", ""))
        is_call = bool(bearer) and request.path.startswith("/api/v1/")
        digest = digest_of_token(bearer) if bearer and not is_signed_in else digest_of_session(request)
        if is_signed_in or (is_call and status < 300):
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > REMEMBERED:
                self._good.popitem(last=False)
        elif status == 401:
            self._good.pop(digest, None)


def token_of_server(path: str, bearer: str) -> ServerToken | None:
    """Return the server token if a server calls about itself and the token is signed correctly.

    Otherwise return None.
    """
    match = SERVER_CALL.fullmatch(path)
    if match is None or not bearer.startswith(tokens.SERVER_PREFIX):
        return None
    try:
        token = tokens.read_server_token(bearer)
    except Problem:
        return None
    return token if token.server_text == match[1] else None


def digest_of_token(bearer: str) -> bytes:
    return sha256(b"token " + bearer.encode(errors="replace")).digest()


def digest_of_session(request: Request) -> bytes:
    """Return the digest of the session that Django reads from the cookies."""
    session = parse_cookie(request.by_name.get("cookie", "")).get(settings.SESSION_COOKIE_NAME, "")
    return sha256(b"session " + session.encode(errors="replace")).digest()
