"""Responses to errors that a view does not handle."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.console.admin_site import current_admin_site
from controlplane.core.database.errors import classify
from controlplane.core.problems import Problem, answer_unavailable


def answer_error(request: HttpRequest, error: Exception) -> HttpResponse | None:
    """Return a page about a refusal of a service, or about a temporary database error. None for other errors.

    A service refuses an action if another user has just changed the object. A host project may not have our middleware
    for database errors.
    """
    if isinstance(error, Problem):
        shown = {"status": error.status, "title": "Not done", "reason": error.detail}
        context = {**current_admin_site().each_context(request), **shown}
        return render(request, "admin/error.html", context, status=error.status)
    return answer_unavailable(request, error) if classify(error) else None
