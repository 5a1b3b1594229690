"""Shortcut for plain heartbeats. Nearly every call is a heartbeat, and nearly none changes the state of its server.

Plain heartbeats bypass Django and Django REST Framework, and simultaneous heartbeats share a statement. All other
heartbeats, and heartbeats to refuse, take the normal path through Django. It writes the error responses.
"""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TypeVar

import orjson
from django.conf import settings
from django.db import Error, close_old_connections
from django.http import HttpResponse, JsonResponse
from django.http.request import split_domain_port, validate_host
from rest_framework.exceptions import ParseError

from controlplane.core import database
from controlplane.core.database import connection
from controlplane.core.database.errors import Temporary, classify
from controlplane.core.json_bodies import read_foreign_json, render_json
from controlplane.core.lean_bodies import REFUSALS, reader_of
from controlplane.core.problems import build_unavailable_response
from jobs.api.serializers.workers import HeartbeatRequest, describe_heartbeat_answer
from jobs.services import heartbeats
from jobs.services.heartbeats import PlainHeartbeat
from liveness.conf import conf
from liveness.services.tokens import ServerToken

Call = TypeVar("Call")
Row = TypeVar("Row")

SMALL_BODY_BYTES = 8192
PATIENCE = 2.0
"""Largest value of `patience()`, in seconds."""
FIELDS = {"state", "metrics", "stopped"}


def patience() -> float:
    """Return the seconds after which a statement counts as hanging. Later statements then use another connection."""
    return min(PATIENCE, conf().timeout / 8)


def answers(beats: list[PlainHeartbeat]) -> list[bytes | None]:
    """Record heartbeats in one statement and return their responses. None means that Django must handle the request.

    Raise the errors of UNHEARD if the database is not available.
    """
    rows = run_together(heartbeats.record_plain_heartbeats, beats)
    return [
        row and render_json(describe_heartbeat_answer(row, beat.token)) for row, beat in zip(rows, beats, strict=True)
    ]


def run_together(
    run: Callable[[list[Call]], list[Row | None]], calls: list[Call], left_to_django: Collection[Temporary] = ()
) -> list[Row | None]:
    """Return the row of each call from one statement. If the database refuses the statement, return None for each call.

    Temporary errors in `left_to_django` count as a refusal, so that Django handles each call by itself. The thread
    keeps its connection for the next statement; see `let_go_of_connection`. Raise the errors of UNHEARD if the database
    is not available.
    """
    database.reset_may_have_changed()
    try:
        return run(calls)
    except Error as error:
        # The response is written in another thread. That thread cannot read the state of this one.
        vars(error)["is_unknown"] = database.may_have_changed()
        let_go_of_connection()
        temporary = classify(error)
        if temporary is None or temporary in left_to_django:
            return [None] * len(calls)
        raise


def let_go_of_connection() -> None:
    """Return this thread's connection to the pool, as at the end of each request. After an error, drop it."""
    if not connection.in_atomic_block:
        close_old_connections()


UNHEARD = (Error, TimeoutError)


def unheard(error: Exception) -> HttpResponse:
    """Return the response if the database is not available.

    Django would wait for the database again and block a thread.
    """
    down: HttpResponse = build_unavailable_response(error, JsonResponse, is_unknown=getattr(error, "is_unknown", True))
    return down


def parse_plain_heartbeat(token: ServerToken, headers: Sequence[tuple[str, str]], body: bytes) -> PlainHeartbeat | None:
    """Return the heartbeat of a request that has the server's own token, or None if Django must handle the request."""
    if not is_plain_request(headers, body):
        return None
    try:
        fields = read_foreign_json(body, keeps_digits=False)
        if not isinstance(fields, dict) or not fields.keys() <= FIELDS or fields.get("stopped"):
            return None
        fields = reader_of(HeartbeatRequest)(fields)
    except (orjson.JSONDecodeError, ParseError, *REFUSALS):
        return None
    if not all(type(value) in (int, float) for value in fields.get("metrics", {}).values()):
        return None
    return PlainHeartbeat(token, fields.get("state"), fields.get("metrics"))


def is_plain_request(headers: Sequence[tuple[str, str]], body: bytes) -> bool:
    """Return True for a small JSON body and headers that Django would accept."""
    by_name = dict(headers)
    return (
        len(by_name) == len(headers)  # Django handles repeated headers
        and by_name.get("content-type") == "application/json"
        and is_allowed_host(by_name.get("host", ""))
        and (not settings.SECURE_SSL_REDIRECT or by_name.get("x-forwarded-proto") == "https")
        and len(body) <= SMALL_BODY_BYTES
    )


@lru_cache(maxsize=64)
def is_allowed_host(host: str) -> bool:
    """Return True if ALLOWED_HOSTS has this host."""
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
