"""Error responses for people and programs, as application/problem+json of one form."""

import math
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from django.core import exceptions
from django.core.exceptions import DisallowedHost, PermissionDenied, TooManyFilesSent
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, MethodNotAllowed, UnsupportedMediaType, ValidationError

from controlplane.core import database
from controlplane.core.database.errors import UNREACHABLE, classify
from controlplane.core.json_bodies import render_json
from controlplane.core.unavailable_page import CONTENT_TYPE as CONTENT_TYPE_OF_PAGE
from controlplane.core.unavailable_page import build_unavailable_page, wants_page

if TYPE_CHECKING:
    from rest_framework.request import Request

log = structlog.get_logger()

CONTENT_TYPE = "application/problem+json"
UNCACHED = {"Cache-Control": "no-store"}
"""Header of every API response: no browser and no proxy may store it."""
RETRY_AFTER = 2
"""Seconds after which a caller may try again, unless the error gives another time."""
LIMITING = frozenset({408, 429, 503})
"""HTTP statuses that ask the caller to try again later. 413 is none: the same body would be too large again."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Problem(Exception):
    """Error response of the API.

    A subclass is named after what happened; its docstring is the detail for the caller.
    """

    status = 409
    code = "conflict"

    def __init__(self, detail: str = "", **facts: Any) -> None:
        self.detail = detail or (self.__doc__ or "").strip()
        self.facts = facts
        super().__init__(self.detail)

    def body(self) -> dict[str, Any]:
        return build_problem(self.status, self.code, self.detail, **self.facts)

    def headers(self) -> dict[str, str]:
        """Return the headers of the response. `retry_after` among the facts, in seconds, overrides the usual time."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return retry_headers(self.status, self.facts.get("retry_after"))


def retry_headers(status: int, seconds: float | None = None) -> dict[str, str]:
    """Return `Retry-After` in whole seconds, at least 1, if the status is in LIMITING. Otherwise return no header."""
    if status not in LIMITING:
        return {}
    return {"Retry-After": str(max(1, math.ceil(RETRY_AFTER if seconds is None else seconds)))}


def build_problem(status: int, code: str, detail: str, **more: object) -> dict[str, Any]:
    """Return the fields of a problem document."""
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail, **more}


def handle_exception(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Handle errors for Django REST Framework.

    Return None for a bug of ours, so that it is logged and becomes a 500.
    """
    headers: dict[str, str] = {}
    match error:
        case Problem():
            body = error.body()
            log_refusal(error, context)
            headers = error.headers()
        case ValidationError():
            errors = key_by_index(error.detail)
            body = build_problem(400, "invalid", "The request is not valid; see `errors`.", errors=errors)
        case APIException():
            detail = f"{error.detail}{advice(error, context['view'])}"
            body = build_problem(error.status_code, str(error.default_code), detail)
            headers = retry_headers(error.status_code, getattr(error, "wait", None))
        case Http404():
            body = build_problem(404, "not_found", str(error) or "There is nothing here.")
        case PermissionDenied():
            body = build_problem(403, "forbidden", str(error) or "This is not allowed.")
        case _ if classify(error):
            return build_unavailable_response(error, JsonResponse, is_unknown=may_have_changed(context["request"]))
        case _:
            return None
    # An error is a problem document even if the view's responses have another format.
    content = render_json(body)
    return HttpResponse(content, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def advice(error: APIException, view: Any) -> str:
    """Return what would be right, as the end of the detail of an error."""
    match error:
        case MethodNotAllowed():
            return f" Allowed here: {', '.join(view.allowed_methods)}."
        case UnsupportedMediaType():
            known = " or ".join(parser.media_type for parser in view.get_parsers())
            return f" Send the header `Content-Type: {known}`."
    return ""


def key_by_index(detail: Any) -> Any:
    """Return validation errors with those of list items keyed by index, as DRF 3.18 does.

    Earlier versions return a list with an empty dict for each valid item.
    """
    if isinstance(detail, list) and detail and all(isinstance(item, dict | list) for item in detail):
        detail = {index: item for index, item in enumerate(detail) if item}
    if isinstance(detail, dict):
        return {name: key_by_index(item) for name, item in detail.items()}
    return detail


def log_refusal(error: Problem, context: dict[str, Any]) -> None:
    """Log one line for each refused call."""
    request, view = context["request"], context["view"]
    identifiers = {name: str(value) for name, value in {**view.kwargs, **error.facts}.items()}
    fields = {**identifiers, "call": f"{request.method} {request.path}", "reason": error.code}
    what = getattr(view, "call_name", type(view).__name__.removesuffix("View"))
    log.warning(f"{what} refused: {error.detail}", **fields)


NOTHING_CHANGED = "{why}; nothing was changed. Try again."
OUTCOME_UNKNOWN = (
    "The database connection was lost during this call, so it may have been done or not. Check before you try again. "
    "It is safe to repeat a report, a heartbeat, or a call with the same Idempotency-Key, request_id or instance_id."
)

PAGE_OUTCOME_UNKNOWN = (
    "The database connection was lost before it confirmed this form, so the action may have been done or not. Check "
    "before you send the form again."
)


def may_have_changed(request: "HttpRequest | Request") -> bool:
    """Return True if the request of this thread may have changed something before the database connection was lost."""
    return request.method not in SAFE_METHODS and database.may_have_changed()


def build_unavailable_response(error: Exception, response_class: Callable[..., Any], *, is_unknown: bool) -> Any:
    """Return a 503 for a temporary database error. `is_unknown` means that the call may have changed something."""
    why = (classify(error) or UNREACHABLE).why
    log.error(why, error=str(error).strip().split("\n")[0], outcome_unknown=is_unknown)
    code, detail = ("outcome_unknown", OUTCOME_UNKNOWN) if is_unknown else ("database_unavailable", NOTHING_CHANGED)
    return response_class(
        build_problem(503, code, detail.format(why=why)),
        status=503,
        headers={**UNCACHED, **retry_headers(503)},
        content_type=CONTENT_TYPE,
    )


def answer_unavailable(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return a 503 for a temporary database error: a page for a browser, a problem document for a program."""
    is_unknown = may_have_changed(request)
    answer: HttpResponse = build_unavailable_response(error, JsonResponse, is_unknown=is_unknown)
    if wants_page(request.path, request.headers.get("Accept", "")):
        why = (classify(error) or UNREACHABLE).why
        reason = PAGE_OUTCOME_UNKNOWN if is_unknown else f"{why}. Nothing was changed."
        answer.content = build_unavailable_page(reason, reloads=request.method in SAFE_METHODS)
        answer.headers["Content-Type"] = CONTENT_TYPE_OF_PAGE
    return answer


class DatabaseDown:
    """Middleware that turns temporary database errors outside the API into 503 instead of 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        database.reset_may_have_changed()
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if classify(error):
            return answer_unavailable(request, error)
        return None


class OddInput:
    """Middleware that returns 400 if a value in a page's address or form is no valid id, or cannot be stored."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if request.path.startswith("/api/") or not isinstance(error, exceptions.ValidationError | DataError):
            return None
        log.warning("Invalid input", call=f"{request.method} {request.path}", error=repr(error))
        return HttpResponseBadRequest("This address has an invalid id, or a value that cannot be stored.")


WRONG_HOST = "The host name in this address is not in ALLOWED_HOSTS, so the control plane refuses the request."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the response to a request that Django refuses before any view runs."""
    if isinstance(exception, TooManyFilesSent):
        return HttpResponseBadRequest("The control plane accepts no files.")
    if isinstance(exception, DisallowedHost):
        if request.path.startswith("/api/"):
            body = build_problem(400, "wrong_host", WRONG_HOST)
            return JsonResponse(body, status=400, headers=UNCACHED, content_type=CONTENT_TYPE)
        return HttpResponseBadRequest(WRONG_HOST)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an error that no view handled: 503 for a temporary database error, otherwise 500."""
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and classify(error):
        return answer_unavailable(request, error)
    if not request.path.startswith("/api/"):
        return defaults.server_error(request)
    body = build_problem(500, "fault", "This is a fault of the control plane. See its log for details.")
    return JsonResponse(body, status=500, headers=UNCACHED, content_type=CONTENT_TYPE)


@csrf_exempt
def not_found(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
    """Return a 404 for addresses under /api that no view serves."""
    body = build_problem(404, "not_found", f"No call of this API is at {request.path}; /api/docs lists them.")
    return JsonResponse(body, status=404, headers=UNCACHED, content_type=CONTENT_TYPE)
