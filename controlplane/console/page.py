"""Access rules of the Instance pages, and rendering of a whole page or of its live part for a poll."""

from collections.abc import Callable
from datetime import UTC
from functools import cache, wraps
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from controlplane.console.access import list_entries, viewable
from controlplane.console.admin_site import current_admin_site
from controlplane.console.polls import answer_poll, is_poll
from controlplane.console.refusals import answer_error
from controlplane.console.saved_views import LISTS, saved_views
from controlplane.console.sidebar import BY_NAME, present_sidebar
from controlplane.core.described import Described
from jobs.permissions import VIEWS
from jobs.selectors.instance import tab_counts, tab_counts_beside
from jobs.states import AttemptState, ExecutionState, JobState, SlotOutcome, TriggerState
from liveness.conf import conf
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.namespaces import (
    NO_NAMESPACE,
    known_namespaces,
    namespaces_of_person,
    reaches_instance,
    rows_within,
)
from liveness.states import ServerState

View = Callable[..., HttpResponse]
POLL_INTERVALS = {"1": "every 1 s", "3": "every 3 s", "10": "every 10 s", "0": "off"}
YEAR = 365 * 86400
OF_NAMESPACES = {"server", "job", "execution", "trigger"}
"""Names of the URL parameters for objects that belong to a namespace."""
READ_METHODS, FORM_METHODS = ("GET", "HEAD"), ("GET", "HEAD", "POST")

LEGENDS: dict[str, list[tuple[str, list[Described]]]] = {
    "overview": [("server", [*ServerState])],
    "servers": [("server", [*ServerState])],
    "server": [("server", [*ServerState]), ("attempt", [*AttemptState])],
    "jobs": [("job", [*JobState])],
    "quarantine": [("job", [*JobState])],
    "job": [("job", [*JobState]), ("attempt", [*AttemptState])],
    "executions": [("execution", [*ExecutionState]), ("step", [*JobState])],
    "execution": [("execution", [*ExecutionState]), ("step", [*JobState])],
    "triggers": [("trigger", [*TriggerState]), ("slot", [*SlotOutcome])],
    "trigger": [("trigger", [*TriggerState]), ("slot", [*SlotOutcome]), ("execution", [*ExecutionState])],
    "recovery": [("attempt", [*AttemptState])],
}
"""States that each page explains at its end, with the kind of object they belong to."""


def require_permission(request: HttpRequest, permission: str) -> None:
    """Raise PermissionDenied if the user lacks this permission."""
    if not request.user.has_perm(permission):
        raise PermissionDenied(f"This needs the permission {permission}.")


def sees(request: HttpRequest, what: str) -> bool:
    """Return True if the user may view this kind of object (a key of `VIEWS`)."""
    return request.user.has_perm(VIEWS[what])


def reached_namespaces(request: HttpRequest) -> frozenset[str] | None:
    """Return the namespaces whose rows the user may view. None means all."""
    return namespaces_of_person(request.user)


def within_reach(request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Limit the rows to namespaces that the user may view."""
    return rows_within(reached_namespaces(request), rows)


def require_instance(request: HttpRequest) -> None:
    """Raise PermissionDenied if the user may not view the whole control plane."""
    if not reaches_instance(reached_namespaces(request)):
        raise PermissionDenied(f"This page is about all namespaces: it needs the namespace {DEFAULT_NAMESPACE}.")


def is_hidden(request: HttpRequest, named: dict[str, Any]) -> bool:
    """Return True if the address names an object in a namespace that the user may not view."""
    reached = reached_namespaces(request)
    named = {word: id for word, id in named.items() if word in OF_NAMESPACES}
    if reached is None or not named:
        return False
    # One query for this and for the counts on the tabs.
    counts, namespaces = tab_counts_beside(reached, named)
    request.tab_counts = counts  # type: ignore[attr-defined]
    return not namespaces <= reached


def require_reader(
    what: str | None = None, methods: tuple[str, ...] = READ_METHODS, *, about_instance: bool = False
) -> Callable[[View], View]:
    """Return a decorator that lets only staff with the view permission for `what` open a page.

    If `what` is None, any view permission is enough. `about_instance` requires the namespace `default`.
    """

    def guarded(view: View) -> View:
        @wraps(view)
        def show_to_reader(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if what:
                require_permission(request, VIEWS[what])
            elif not viewable(request.user):
                raise PermissionDenied(f"This needs one of the permissions {', '.join(VIEWS.values())}.")
            if reached_namespaces(request) == frozenset():
                raise PermissionDenied(NO_NAMESPACE)
            if about_instance:
                require_instance(request)
            # English and UTC, whatever the project uses: a localised coordinate in an SVG would have a comma.
            with translation.override("en"), timezone.override(UTC):
                if is_hidden(request, kwargs):
                    return show_not_found(request, what or "")
                return answer(request, *args, **kwargs)

        answer = require_http_methods(methods)(view)

        @wraps(view)
        def show(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            site = current_admin_site()
            request.current_app = site.name
            if is_poll(request) and not site.has_permission(request):
                # The sign-in page may be on another origin. The script of a poll may not go there, but a reload can.
                return HttpResponse(status=401, headers={"HX-Refresh": "true"})
            try:
                return admin_view(site)(request, *args, **kwargs)
            except Exception as error:
                if (explained := answer_error(request, error)) is None:
                    raise
                return explained

        @cache
        def admin_view(site: AdminSite) -> View:
            return site.admin_view(show_to_reader)

        return show

    return guarded


HOME = ("Instance", "instance:overview")
"""First entry of every breadcrumb trail: label and name of the page. Entries of one object also have its id."""


def show_not_found(request: HttpRequest, what: str, plural: str = "") -> HttpResponse:
    """Show that no object has this id. The object may have been deleted."""
    listed = plural or f"{what}s"
    shown = {"title": f"Unknown {what}", "what": what, "list": f"instance:{listed}", "tab": listed}
    return render_page(request, "unknown", shown, status=404)


def render_page(
    request: HttpRequest,
    name: str,
    shown: dict[str, Any],
    status: int = 200,
    lives: bool = True,
    is_over: bool = False,
) -> HttpResponse:
    """Return the page, or only its live part for a poll. A page that `is_over` does not change any more."""
    live, entries = f"admin/instance/_{name}.html", list_entries(request.user)
    counts = shown.pop("tab_counts", getattr(request, "tab_counts", None))
    if counts is None:
        counts = tab_counts(reached_namespaces(request))
    shown = {
        "live": live,
        "sees": viewable(request.user),
        "sidebar": present_sidebar(entries, counts, name, shown.get("tab", "")),
        **shown,
    }
    if is_poll(request) and lives:
        part = render(request, "admin/instance/poll.html", shown, status=status)
        return answer_poll(request, part, is_over=is_over)
    poll = poll_interval(request)
    if "filter" in shown:
        offer_namespaces(request, shown)
    if shown.get("filters") in LISTS:
        shown["saved_views"] = saved_views(request, shown["filters"])
    context = {
        **current_admin_site().each_context(request),
        "keys": [(one.key, one.label, one.url) for one in map(BY_NAME.__getitem__, entries) if one.key],
        "lives": lives and status == 200,
        "poll": poll,
        "is_over": is_over,
        "polls": POLL_INTERVALS.items(),
        "legends": explain_states(name) if status == 200 else "",
        # A page that does not refresh shows its age, and no warning that it is stale.
        "stale_after": max(3 * conf().interval, 3 * int(poll)) if poll != "0" and not is_over else 0,
        **shown,
    }
    return render(request, "admin/instance/base.html", context, status=status)


@cache
def explain_states(page: str) -> str:
    """Return the legend of the states on a page. It never changes, so it is cached."""
    return render_to_string("admin/instance/_legends.html", {"legends": LEGENDS.get(page, [])})


def offer_namespaces(request: HttpRequest, shown: dict[str, Any]) -> None:
    """Add the known namespaces to the filter. Remove the field if there is only one namespace."""
    chosen = shown["filter"]
    if "namespace" not in chosen.fields:
        return
    reached, choices = reached_namespaces(request), {**shown.get("choices", {})}
    found = choices.pop("namespace", None)
    known = sorted(reached) if reached is not None else found or known_namespaces(look=not chosen.chosen_values)
    if len(known) > 1 or "namespace" in chosen.chosen_values:
        shown["choices"] = {**choices, "namespace": known}
    else:
        shown["choices"] = choices
        del chosen.fields["namespace"]


def poll_interval(request: HttpRequest) -> str:
    """Return the user's refresh interval in seconds, as text. It is kept in a cookie for each user."""
    chosen = request.COOKIES.get(f"poll-{request.user.pk}", "")
    return chosen if chosen in POLL_INTERVALS else "3"


@require_reader(methods=("POST",))
def choose_poll_interval(request: HttpRequest) -> HttpResponse:
    """Store the refresh interval of the user's pages (`POST poll/`)."""
    back = request.POST.get("back", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
        back = reverse("instance:overview")
    answer = HttpResponseRedirect(back)
    chosen = request.POST.get("every", "")
    if chosen in POLL_INTERVALS:
        answer.set_cookie(
            f"poll-{request.user.pk}", chosen, max_age=YEAR, samesite="Lax", secure=request.is_secure(), httponly=True
        )
    return answer
