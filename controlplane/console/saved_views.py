"""Saved views: filters of a list that a user has named. A browser keeps them in a cookie for each user."""

import json
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

LISTS = ("jobs", "servers", "executions", "triggers")
"""Lists whose filters can be saved."""
MOST_VIEWS, LONGEST_NAME, LONGEST_COOKIE = 20, 60, 3_500
"""Limits of the views of a list, of a name in characters, and of the cookie in bytes."""


class SavedView(NamedTuple):
    name: str
    url: str


def cookie_name(request: HttpRequest) -> str:
    return f"views-{request.user.pk}"


def read_all_views(request: HttpRequest) -> dict[str, dict[str, str]]:
    """Return the queries of all views, by list and by name. An invalid cookie counts as empty."""
    try:
        read: Any = json.loads(request.COOKIES.get(cookie_name(request), "{}"))
        found = {page: read.get(page) or {} for page in LISTS}
        return {page: {str(name): str(query) for name, query in of.items()} for page, of in found.items()}
    except (ValueError, AttributeError):
        return {}


def saved_views(request: HttpRequest, page: str) -> list[SavedView]:
    """Return the saved views of a list, by name."""
    at = reverse(f"instance:{page}")
    # The query is parsed and written again, so that a manipulated cookie cannot lead elsewhere.
    return [
        SavedView(name, f"{at}?{urlencode(list(QueryDict(query).items()))}")
        for name, query in sorted(read_all_views(request).get(page, {}).items())
    ]


def keep_view(request: HttpRequest, answer: HttpResponse, page: str, name: str, query: str) -> bool:
    """Store a view in the cookie of the response. An empty query deletes it.

    Return False if there is no room for it.
    """
    views = read_all_views(request)
    of_list = views.setdefault(page, {})
    of_list.pop(name, None)
    if query:
        of_list[name] = query
    text = json.dumps(views)
    if len(of_list) > MOST_VIEWS or len(text) > LONGEST_COOKIE:
        return False
    answer.set_cookie(
        cookie_name(request), text, max_age=365 * 86400, samesite="Lax", secure=request.is_secure(), httponly=True
    )
    return True
