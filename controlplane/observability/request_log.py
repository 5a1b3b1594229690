"""Middleware that adds the request to each log line, and logs how the request ended.

The events are `request_started`, `request_finished` and `request_failed`, and for streamed bodies
`streaming_started`, `streaming_finished` and `streaming_failed`. Each line has `request_id` and `ip`.
"""

import logging
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.core.signals import got_request_exception
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, get_contextvars

from controlplane.console.sign_in import address_of

log = structlog.stdlib.get_logger(__name__)
lines = logging.getLogger(__name__)

HAS_FAILED = "controlplane.has_failed"
"""Key in the environ of a request whose exception is already in the log."""


class RequestLog:
    """Log each request. If the logger's level is above INFO, log only requests that end with status 400 or above."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        bind_contextvars(request_id=str(uuid.uuid4()), ip=address_of(request))
        # The check comes first, because building a line is slower, and each heartbeat passes here.
        is_verbose = lines.isEnabledFor(logging.INFO)
        if is_verbose:
            log.info("request_started", request=describe_request(request), user_agent=request.headers.get("User-Agent"))
        response = self.get_response(request)
        if request.META.get(HAS_FAILED) is None:
            if is_verbose or response.status_code >= 400:
                bind_user(request)
                level = level_of(response.status_code)
                log.log(level, "request_finished", code=response.status_code, request=describe_request(request))
            if isinstance(response, StreamingHttpResponse):
                chunks: Any = response.streaming_content  # this handler is synchronous, and so are all streams
                response.streaming_content = log_stream(chunks, get_contextvars())
        clear_contextvars()
        return response


@receiver(got_request_exception)
def log_failure(request: HttpRequest | None = None, **_: Any) -> None:
    """Log an exception with its traceback while it is being handled. 404 and 403 are no failures."""
    error = sys.exception()
    if request is None or HAS_FAILED in request.META or isinstance(error, Http404 | PermissionDenied):
        return
    request.META[HAS_FAILED] = True
    bind_user(request)
    log.exception("request_failed", code=500, request=describe_request(request))


def log_stream(chunks: Iterable[bytes], context: dict[str, Any]) -> Iterator[bytes]:
    """Yield the chunks. The middleware has already returned, so `context` is bound again for the log lines."""
    with bound_contextvars(**context):
        log.info("streaming_started")
        try:
            yield from chunks
        except Exception:
            log.exception("streaming_failed")
            raise
        log.info("streaming_finished")


def describe_request(request: HttpRequest) -> str:
    return f"{request.method} {request.get_full_path()}"


def bind_user(request: HttpRequest) -> None:
    """Add `user_id` to the context, None for an anonymous user.

    Reading the user marks the session as accessed, and Django would then add `Vary: Cookie` to the response. The
    response does not depend on the user, so the mark is reset.
    """
    user = getattr(request, "user", None)
    if user is None:
        return
    was_accessed = request.session.accessed
    bind_contextvars(user_id=user.pk)
    request.session.accessed = was_accessed


def level_of(status: int) -> int:
    return logging.ERROR if status >= 500 else logging.WARNING if status >= 400 else logging.INFO
