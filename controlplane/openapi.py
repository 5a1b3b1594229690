"""Additions to the OpenAPI document beyond the views: authentication, and how errors look."""

from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension

PROBLEMS = {
    "400": "The request is not valid; see `errors`.",
    "401": "The token is missing, unknown, expired or revoked.",
    "403": "The token has another role or belongs to another server, or the session's CSRF token is missing.",
    "404": "There is no object with this id, or you may not see it.",
    "405": "The address does not support this method.",
    "408": "The body did not arrive in time; nothing was changed.",
    "409": "The call conflicts with the current state; see `code`. A submission gets `no_runner` if no worker in the"
    " fleet runs such an action and the submission does not ask to wait.",
    "410": "The server is no longer known.",
    "413": "The body is larger than 1 MiB.",
    "415": "The body is not application/json.",
    "429": "You are over a limit: `too_many_calls` at once, `too_many_waiting` jobs, `too_many_tag_sets` among them,"
    " `quota_exceeded` if the jobs would fill more bytes than a token may, or exceed a quota"
    " of the namespace (`field`), `too_many_servers` for a token with a limited number of servers. Retry-After gives"
    " the seconds to wait.",
    "503": "The control plane is temporarily unavailable. Retry-After gives the seconds to wait, and `code` the reason:"
    " `overloaded` or `database_unavailable` (nothing was changed), `outcome_unknown`, `try_again`."
    " A submission with `require_worker` gets `workers_in_maintenance`, `workers_cordoned` (or draining) or"
    " `no_fresh_workers`. Then `filter` names what is missing: freshness (or any server), tags, state or capacity.",
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
        return {
            **cookie,
            "description": "Session of a signed-in staff user. Calls that change something also need the CSRF token.",
        }


def add_problem_responses(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add a problem document to the responses of every operation."""
    result["components"].setdefault("schemas", {})["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operations in result["paths"].values():
        for operation in operations.values():
            for status, description in PROBLEMS.items():
                operation["responses"].setdefault(status, {"description": description, "content": content})
    return result


def allow_null_of_anything(result: Any, **_: Any) -> Any:
    """Simplify "anything or null" to "anything". Otherwise null would match both, and `oneOf` allows only one match."""
    if isinstance(result, dict):
        if {} in result.get("oneOf", ()):
            del result["oneOf"]
        for value in result.values():
            allow_null_of_anything(value)
    elif isinstance(result, list):
        for value in result:
            allow_null_of_anything(value)
    return result
