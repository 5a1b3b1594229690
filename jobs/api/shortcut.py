"""Heartbeats by the short way: nearly every call is one, and nearly every one says nothing new.

They pass by the layers of Django and Django REST Framework, and those that come at once share a statement. Whatever is
not as plain as that, or is refused here, goes the long way, which alone says what is wrong with it.
"""

import re
from functools import lru_cache
from io import BytesIO
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections
from django.http import HttpResponse, JsonResponse
from django.http.request import split_domain_port, validate_host

from controlplane.core import database
from controlplane.core.database import connection
from controlplane.core.problems import Problem, build_unavailable_response
from controlplane.core.rest import JSONRenderer, size_of
from jobs.api.serializers.workers import METRICS_LIMIT, METRICS_SIZE_LIMIT, describe_heartbeat_answer
from jobs.services import heartbeats
from jobs.services.heartbeats import PlainHeartbeat
from liveness.conf import conf
from liveness.services import tokens
from liveness.states import ServerState

Environ = dict[str, Any]

HEARTBEAT = re.compile(r"/api/v1/servers/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/heartbeat")
SMALL_BODY_BYTES = 8192
PATIENCE = 2.0
"""Less where timeouts are short."""
STATES = set(ServerState)
FIELDS = {"state", "metrics", "stopped"}
render_json = JSONRenderer().render


def patience() -> float:
    """Seconds after which a statement hangs: the next is said over another connection."""
    return min(PATIENCE, conf().timeout / 8)


def answers(beats: list[PlainHeartbeat]) -> list[HttpResponse | None]:
    """What each is answered, all in one statement; None: it is to go the long way. Raises those of UNHEARD."""
    database.reset_may_have_changed()
    try:
        rows = heartbeats.record_plain_heartbeats(beats)
    except (OperationalError, InterfaceError) as error:
        # Whoever answers is in another thread, and cannot know.
        vars(error)["is_unknown"] = database.may_have_changed()
        raise
    except DatabaseError:
        return [None] * len(beats)
    finally:
        if not connection.in_atomic_block:
            close_old_connections()  # the connection goes back to the pool, as at the end of each request
    return [
        HttpResponse(render_json(describe_heartbeat_answer(row)), content_type="application/json") if row else None
        for row in rows
    ]


UNHEARD = (OperationalError, InterfaceError, TimeoutError)


def unheard(error: Exception) -> HttpResponse:
    """The answer when the database could not be asked. The long way would wait for it once more, with a thread."""
    down: HttpResponse = build_unavailable_response(error, JsonResponse, is_unknown=getattr(error, "is_unknown", True))
    return down


def parse_plain_heartbeat(environ: Environ) -> PlainHeartbeat | None:
    """The heartbeat that a request is, when it is a plain one."""
    path = HEARTBEAT.fullmatch(environ["PATH_INFO"]) if environ["REQUEST_METHOD"] == "POST" else None
    if settings.SECURE_SSL_REDIRECT and environ.get("HTTP_X_FORWARDED_PROTO") != "https":
        return None
    if not (
        path and environ.get("CONTENT_TYPE") == "application/json" and is_allowed_host(environ.get("HTTP_HOST", ""))
    ):
        return None
    scheme, _, text = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme != "Bearer" or not text.startswith(tokens.SERVER_PREFIX):
        return None
    try:
        token, fields = tokens.read_server_token(text), orjson.loads(read_small_body(environ))
    except (Problem, orjson.JSONDecodeError):
        return None
    if token.server != UUID(path[1]) or not isinstance(fields, dict) or not fields.keys() <= FIELDS:
        return None
    if "state" in fields and (not isinstance(fields["state"], str) or fields["state"] not in STATES):
        return None
    if fields.get("stopped", []) != []:
        return None
    if "metrics" in fields and not are_numeric_metrics(fields["metrics"]):
        return None
    return PlainHeartbeat(token, fields.get("state"), fields.get("metrics"))


def are_numeric_metrics(metrics: Any) -> bool:
    """Whether these are names with numbers, as an agent sends them."""
    return (
        isinstance(metrics, dict)
        and len(metrics) <= METRICS_LIMIT
        and all(type(value) in (int, float) for value in metrics.values())
        and size_of(metrics) <= METRICS_SIZE_LIMIT
        and not any("\0" in name for name in metrics)
    )


def read_small_body(environ: Environ) -> bytes:
    """The body where it is small, which the long way can read again."""
    length = environ.get("CONTENT_LENGTH", "")
    if not (length.isascii() and length.isdigit() and int(length) <= SMALL_BODY_BYTES):
        return b""
    body: bytes = environ["wsgi.input"].read(int(length))
    environ["wsgi.input"] = BytesIO(body)
    return body


@lru_cache(maxsize=64)
def is_allowed_host(host: str) -> bool:
    """Whether Django would answer under this name."""
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
