"""Heartbeats by the short way: nearly every call is one, and nearly every one says nothing new.

They pass by the layers of Django and Django REST Framework, and those that come at once share a statement. Whatever is
not as plain as that, or is refused here, goes the long way, which alone says what is wrong with it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections
from django.http import HttpResponse, JsonResponse
from django.http.request import split_domain_port, validate_host

from controlplane.core import database
from controlplane.core.database import connection
from controlplane.core.json_bodies import JSONRenderer, size_of
from controlplane.core.problems import build_unavailable_response
from jobs.api.serializers.workers import METRICS_LIMIT, METRICS_SIZE_LIMIT, describe_heartbeat_answer
from jobs.services import heartbeats
from jobs.services.heartbeats import PlainHeartbeat
from liveness.conf import conf
from liveness.services.tokens import ServerToken
from liveness.states import ServerState

SMALL_BODY_BYTES = 8192
PATIENCE = 2.0
"""Less where timeouts are short."""
STATES = set(ServerState)
FIELDS = {"state", "metrics", "stopped"}
render_json = JSONRenderer().render


def patience() -> float:
    """Seconds after which a statement hangs: the next is run over another connection."""
    return min(PATIENCE, conf().timeout / 8)


def answers(beats: list[PlainHeartbeat]) -> list[bytes | None]:
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
    return [row and render_json(describe_heartbeat_answer(row)) for row in rows]


UNHEARD = (OperationalError, InterfaceError, TimeoutError)


def unheard(error: Exception) -> HttpResponse:
    """The answer when the database could not be asked. The long way would wait for it once more, with a thread."""
    down: HttpResponse = build_unavailable_response(error, JsonResponse, is_unknown=getattr(error, "is_unknown", True))
    return down


def parse_plain_heartbeat(token: ServerToken, headers: Sequence[tuple[str, str]], body: bytes) -> PlainHeartbeat | None:
    """What a server says of itself that calls its heartbeat with its own token, when it is a plain one."""
    by_name = dict(headers)
    if (
        len(by_name) < len(headers)  # of a header that is there twice Django judges
        or by_name.get("content-type") != "application/json"
        or not is_allowed_host(by_name.get("host", ""))
        or (settings.SECURE_SSL_REDIRECT and by_name.get("x-forwarded-proto") != "https")
        or len(body) > SMALL_BODY_BYTES
    ):
        return None
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or not fields.keys() <= FIELDS:
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


@lru_cache(maxsize=64)
def is_allowed_host(host: str) -> bool:
    """Whether Django would answer under this name."""
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
