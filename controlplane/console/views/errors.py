"""What a person reads who is let in nowhere: what went wrong, and the way on."""

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """No page has this address."""
    return render_error(
        request, 404, "No page has this address", "Perhaps the address has a mistake, or is an old one."
    )


def forbidden(request: HttpRequest, exception: PermissionDenied) -> HttpResponse:
    """Whoever is signed in lacks a permission."""
    reason = str(exception) or "The user who is signed in lacks the permission for it."
    return render_error(request, 403, "You may not see this page", reason)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form without the secret of the page that it came from."""
    expired = "Nothing was changed. Go back, load the page again, and send its form once more; cookies must be allowed."
    return render_error(request, 403, "This form is too old, or from another site", expired)


def render_error(request: HttpRequest, status: int, title: str, reason: str) -> HttpResponse:
    shown = {"status": status, "title": title, "reason": reason, "is_nav_sidebar_enabled": False}
    context = {**admin.site.each_context(request), **shown}
    return render(request, "admin/error.html", context, status=status)
