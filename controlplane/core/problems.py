"""Errors as people and programs read them: application/problem+json, in one shape everywhere."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from django.core import exceptions
from django.core.exceptions import DisallowedHost, PermissionDenied, TooManyFilesSent
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, ValidationError

from controlplane.core import database
from controlplane.core.json_bodies import JSONRenderer

log = structlog.get_logger()

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER = 2
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Problem(Exception):
    """A refusal with its reason. Subclasses say what happened; their docstring is the detail."""

    status = 409
    code = "conflict"

    def __init__(self, detail: str = "", **facts: Any) -> None:
        self.detail = detail or (self.__doc__ or "").strip()
        self.facts = facts
        super().__init__(self.detail)

    def body(self) -> dict[str, Any]:
        return build_problem(self.status, self.code, self.detail, **self.facts)


def headers_of(problem: Problem) -> dict[str, str]:
    """What a refusal says besides its body."""
    match problem.status:
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 429 | 503:
            return {"Retry-After": str(problem.facts.get("retry_after", RETRY_AFTER))}
    return {}


def build_problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """The fields of a problem document."""
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail, **more}


def handle_exception(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Django REST Framework's exception handler. None lets a fault of ours be a 500, with its traceback logged."""
    headers: dict[str, str] = {}
    match error:
        case Problem():
            body = error.body()
            log_refusal(error, context)
            headers = headers_of(error)
        case ValidationError():
            body = build_problem(400, "invalid", "The request is not valid; `errors` says where.", errors=error.detail)
        case APIException():
            body = build_problem(error.status_code, str(error.default_code), str(error.detail))
        case Http404():
            body = build_problem(404, "not_found", str(error) or "There is nothing here.")
        case PermissionDenied():
            body = build_problem(403, "forbidden", str(error) or "This is not allowed.")
        case OperationalError() | InterfaceError():
            return build_unavailable_response(error, JsonResponse, is_unknown=may_have_changed(context["request"]))
        case _:
            return None
    # Whatever a view answers otherwise, be it a page, a refusal is a problem document.
    content = JSONRenderer().render(body)
    return HttpResponse(content, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def log_refusal(error: Problem, context: dict[str, Any]) -> None:
    """A line of the log for each call that is refused."""
    request, view = context["request"], context["view"]
    identifiers = {name: str(value) for name, value in {**view.kwargs, **error.facts}.items()}
    fields = {**identifiers, "call": f"{request.method} {request.path}", "reason": error.code}
    what = getattr(view, "call_name", type(view).__name__)
    log.warning(f"{what} refused: {error.detail}", **fields)


NOTHING_CHANGED = "The database cannot be reached just now; nothing was changed. Try again."
OUTCOME_UNKNOWN = (
    "The database was lost in the middle of this call: it may have been done, or not. Look before you try again; "
    "with the same Idempotency-Key, request_id or instance_id, and of a report or a heartbeat, the same again is safe."
)


def may_have_changed(request: Any) -> bool:
    """Whether the request that this thread answers may have changed something before the database was lost."""
    return request.method not in SAFE_METHODS and database.may_have_changed()


def build_unavailable_response(error: Exception, response_class: Callable[..., Any], *, is_unknown: bool) -> Any:
    log.error("The database cannot be reached", error=str(error).strip().split("\n")[0], outcome_unknown=is_unknown)
    code, detail = ("outcome_unknown", OUTCOME_UNKNOWN) if is_unknown else ("database_unavailable", NOTHING_CHANGED)
    return response_class(
        build_problem(503, code, detail),
        status=503,
        headers={"Retry-After": str(RETRY_AFTER)},
        content_type=CONTENT_TYPE,
    )


class DatabaseDown:
    """Middleware: what fails outside the API for want of a database is a 503 as well, never a 500."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        database.reset_may_have_changed()
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, OperationalError | InterfaceError):
            return build_unavailable_response(error, JsonResponse, is_unknown=may_have_changed(request))
        return None


class OddInput:
    """Middleware: what reaches the database outside the API though it is no id, or cannot be stored, is a 400."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if request.path.startswith("/api/") or not isinstance(error, exceptions.ValidationError | DataError):
            return None
        log.warning("Invalid input", call=f"{request.method} {request.path}", error=repr(error))
        return HttpResponseBadRequest("Something in this request is no id, or cannot be looked for: check its address.")


WRONG_HOST = "The control plane does not answer under the name in this address: it is not in ALLOWED_HOSTS."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """What Django refuses before any view is asked."""
    if isinstance(exception, TooManyFilesSent):
        return HttpResponseBadRequest("The control plane takes no files.")
    if isinstance(exception, DisallowedHost):
        if request.path.startswith("/api/"):
            body = build_problem(400, "wrong_host", WRONG_HOST)
            return JsonResponse(body, status=400, content_type=CONTENT_TYPE)
        return HttpResponseBadRequest(WRONG_HOST)
    return defaults.bad_request(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """A fault of ours; its traceback is in the log."""
    if not request.path.startswith("/api/"):
        return defaults.server_error(request)
    body = build_problem(500, "fault", "This is a fault of the control plane; its log tells more.")
    return JsonResponse(body, status=500, content_type=CONTENT_TYPE)


@csrf_exempt
def not_found(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
    """For addresses under /api that no view answers."""
    body = build_problem(404, "not_found", f"No call of this API is at {request.path}; /api/docs lists them.")
    return JsonResponse(body, status=404, content_type=CONTENT_TYPE)
