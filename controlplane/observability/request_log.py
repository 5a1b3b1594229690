"""What lines of the log say of the request in which they are written."""

import logging
import uuid

import structlog
from django.http import HttpRequest, HttpResponse
from django_structlog.middlewares import RequestMiddleware

from controlplane.console.sign_in import address_of

lines = logging.getLogger("django_structlog.middlewares.request")


class RequestLog(RequestMiddleware):
    """As django-structlog has it, without what nobody reads: that a request began, and that it ended well, is put
    together where a line is written of it."""

    def prepare(self, request: HttpRequest) -> None:
        if lines.isEnabledFor(logging.INFO):
            super().prepare(request)
        else:
            structlog.contextvars.bind_contextvars(request_id=str(uuid.uuid4()), ip=address_of(request))

    def handle_response(self, request: HttpRequest, response: HttpResponse) -> None:
        is_worth_a_line = response.status_code >= 400 or response.streaming or hasattr(request, "_raised_exception")
        if is_worth_a_line or lines.isEnabledFor(logging.INFO):
            super().handle_response(request, response)
        else:
            structlog.contextvars.clear_contextvars()

    @classmethod
    def bind_ip(cls, request: HttpRequest) -> None:
        structlog.contextvars.bind_contextvars(ip=address_of(request))
