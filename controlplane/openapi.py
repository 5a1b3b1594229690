"""What the OpenAPI document says beyond the views: who may call, and how errors look."""

from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension

PROBLEMS = {
    "400": "The request is not valid; `errors` says where.",
    "401": "The token is missing, unknown, expired or revoked.",
    "403": "A token of another role, or another server's; or a session without its CSRF token.",
    "404": "There is nothing with this id, or it is not yours.",
    "405": "The call does not exist in this method.",
    "408": "The body did not arrive in time; nothing was changed.",
    "409": "It does not apply now; `code` says why: of a submission `no_runner`, when no worker of the fleet takes such"
    " an action and it does not say that it waits.",
    "410": "The server is not known any more.",
    "413": "The body is larger than 1 MiB.",
    "415": "The body is not application/json.",
    "429": "More than your share: `too_many_calls` at once, `too_many_waiting` jobs, `too_many_servers` of a token"
    " that is bound to a number. Retry-After says when to try again.",
    "503": "Not just now; Retry-After says when to try again. The `code` says why: `overloaded` (nothing was changed),"
    " `database_unavailable` (nor then), `outcome_unknown`, `try_again`,"
    " or of a submission with `require_worker` what is in the way: `workers_in_maintenance`, `workers_cordoned` (or"
    " draining), otherwise `no_fresh_workers`: `filter` says freshness (or nobody is there), tags, state or capacity.",
}
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "For programs."},
        "detail": {"type": "string", "description": "For people."},
        "errors": {"description": "By field, or by place in a list."},
    },
}


class BearerScheme(OpenApiAuthenticationExtension):
    target_class = "liveness.api.authentication.Bearer"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API token, or a server token."}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "jobs.api.sessions.StaffSession"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        cookie = {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
        return {**cookie, "description": "Of staff who are signed in; what changes something needs the CSRF token too."}


def add_problem_responses(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Every operation may answer with a problem document."""
    result["components"].setdefault("schemas", {})["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in result["paths"].values():
        for operation in operations.values():
            for status, description in PROBLEMS.items():
                operation["responses"].setdefault(status, {"description": description, "content": content})
    return result


def allow_null_of_anything(result: Any, **_: Any) -> Any:
    """Anything, or null, is anything: as one of the two, null would be both, and so none."""
    if isinstance(result, dict):
        if {} in result.get("oneOf", ()):
            del result["oneOf"]
        for value in result.values():
            allow_null_of_anything(value)
    elif isinstance(result, list):
        for value in result:
            allow_null_of_anything(value)
    return result
