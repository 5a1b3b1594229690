"""Who may read the Instance pages, and how one is answered: whole, or for a poll only the part of it that lives."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST
from django_htmx.middleware import HtmxDetails

from liveness.conf import conf

View = Callable[..., HttpResponse]
POLLS = {"1": "every second", "3": "every 3 s", "10": "every 10 s", "0": "off"}
YEAR = 365 * 86400


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def permitted(request: HttpRequest, permission: str) -> None:
    """Raises PermissionDenied."""
    if not request.user.has_perm(permission):
        raise PermissionDenied(f"This needs the permission {permission}.")


def for_readers(view: View) -> View:
    """A page of the admin for staff who may view servers."""

    @wraps(view)
    def judged(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        permitted(request, "liveness.view_server")
        return view(request, *args, **kwargs)

    return admin.site.admin_view(judged)


def page(request: HtmxRequest, name: str, shown: dict[str, Any], status: int = 200, lives: bool = True) -> HttpResponse:
    """The page, or for a poll only the part of it that lives."""
    live = f"admin/instance/_{name}.html"
    if request.htmx and lives:
        return render(request, live, shown, status=status)
    poll = poll_of(request)
    context = {
        **admin.site.each_context(request),
        "is_nav_sidebar_enabled": False,  # these pages have tabs of their own, and all of the width
        "live": live,
        "lives": lives and status == 200,
        "poll": poll,
        "polls": POLLS.items(),
        "stale_after": max(3 * conf().interval, 3 * int(poll)),
        **shown,
    }
    return render(request, "admin/instance/base.html", context, status=status)


def poll_of(request: HttpRequest) -> str:
    """How often this reader's pages ask anew, in seconds; kept by his browser, for each user of it."""
    chosen = request.COOKIES.get(f"poll-{request.user.pk}", "")
    return chosen if chosen in POLLS else "3"


@for_readers
@require_POST
def choose_poll(request: HttpRequest) -> HttpResponse:
    """`POST poll/`: how often pages ask anew, from now on."""
    back = request.POST.get("back", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
        back = reverse("instance:overview")
    answer = HttpResponseRedirect(back)
    chosen = request.POST.get("every", "")
    if chosen in POLLS:
        answer.set_cookie(
            f"poll-{request.user.pk}", chosen, max_age=YEAR, samesite="Lax", secure=request.is_secure(), httponly=True
        )
    return answer
