"""Error pages for people: what went wrong and where to go next."""

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.console.admin_site import current_admin_site


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the response to a request for an address that has no page."""
    return render_error(request, 404, "Page not found", "No page has this address. It may be mistyped or out of date.")


def forbidden(request: HttpRequest, exception: PermissionDenied) -> HttpResponse:
    """Return the response to a request for which the signed-in user lacks a permission."""
    reason = str(exception) or "Your user lacks a permission for this page."
    return render_error(request, 403, "You may not see this page", reason)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the response to a form with a missing or wrong CSRF token."""
    expired = "Nothing was changed. Go back, reload the page and send the form again. Your browser must allow cookies."
    return render_error(request, 403, "This form has expired or came from another site", expired)


def render_error(request: HttpRequest, status: int, title: str, reason: str) -> HttpResponse:
    shown = {"status": status, "title": title, "reason": reason}
    context = {**current_admin_site().each_context(request), **shown}
    return render(request, "admin/error.html", context, status=status)
