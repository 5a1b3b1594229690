"""Who may read the Instance pages, and how one is answered: whole, or for a poll only the part of it that lives."""

from collections.abc import Callable
from datetime import UTC
from functools import cache, wraps
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods
from django_htmx.middleware import HtmxDetails

from controlplane.console.presenters.tabs import present_tabs, tab_url
from controlplane.core.described import Described
from jobs.permissions import VIEWS
from jobs.selectors.instance import tab_counts, tab_counts_beside
from jobs.states import AttemptState, ExecutionState, JobState, SlotOutcome, TriggerState
from liveness.conf import conf
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.namespaces import known_namespaces, namespaces_of_person, reaches_instance, rows_within
from liveness.states import ServerState

View = Callable[..., HttpResponse]
POLL_INTERVALS = {"1": "every 1 s", "3": "every 3 s", "10": "every 10 s", "0": "off"}
YEAR = 365 * 86400
OF_NAMESPACES = {"server", "job", "execution", "trigger"}
"""What is of a namespace, as addresses name it."""
READ_METHODS, FORM_METHODS = ("GET", "HEAD"), ("GET", "HEAD", "POST")

TABS = {
    "overview": None, "servers": "server", "jobs": "job", "executions": "execution", "triggers": "trigger",
    "trends": "job", "activity": None, "alerts": None, "maintenance": "server", "brake": "server",
    "quarantine": "job", "recovery": "job",
}  # fmt: skip
"""The pages on which others stand, and of what they are; None: of whatever their reader may view."""

ABOUT_INSTANCE = {"overview", "trends", "activity", "alerts", "maintenance", "brake", "recovery"}
"""The tabs that are about the whole control plane: for who reaches the namespace `default`."""

TAB_OF_PAGE = {
    "server": "servers", "job": "jobs", "log": "jobs", "errors": "jobs", "execution": "executions", "batches": "jobs",
    "trigger": "triggers", "trigger_form": "triggers",
}  # fmt: skip
"""Under which tab a page stands that is none itself."""

KEYS = {
    "o": "overview", "s": "servers", "j": "jobs", "e": "executions", "t": "triggers", "a": "activity",
    "l": "alerts", "m": "maintenance", "b": "brake", "q": "quarantine", "r": "recovery",
}  # fmt: skip
"""What leads to which tab after `g`."""

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
    "trigger": [("trigger", [*TriggerState]), ("slot", [*SlotOutcome])],
    "recovery": [("attempt", [*AttemptState])],
}
"""The states that a page shows, and of what they are: it explains them at its end."""


def require_permission(request: HttpRequest, permission: str) -> None:
    """Raises PermissionDenied."""
    if not request.user.has_perm(permission):
        raise PermissionDenied(f"This needs the permission {permission}.")


def sees(request: HttpRequest, what: str) -> bool:
    """Whether the reader may view it, of `VIEWS`."""
    return request.user.has_perm(VIEWS[what])


def viewable(user: Any) -> frozenset[str]:
    """Which of `VIEWS` somebody may view."""
    return frozenset(what for what, permission in VIEWS.items() if user.has_perm(permission))


def reached_namespaces(request: HttpRequest) -> frozenset[str] | None:
    """Those whose rows the reader sees. None: all."""
    return namespaces_of_person(request.user)


def within_reach(request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Of these rows those that the reader sees."""
    return rows_within(reached_namespaces(request), rows)


def require_instance(request: HttpRequest) -> None:
    """Raises PermissionDenied."""
    if not reaches_instance(reached_namespaces(request)):
        raise PermissionDenied(f"This is about all namespaces: it needs the namespace {DEFAULT_NAMESPACE}.")


def is_hidden(request: HttpRequest, named: dict[str, Any]) -> bool:
    """Whether the address names what the reader does not see."""
    reached = reached_namespaces(request)
    named = {word: id for word, id in named.items() if word in OF_NAMESPACES}
    if reached is None or not named:
        return False
    # In one query with what the page tells on its tabs.
    counts, namespaces = tab_counts_beside(reached, named)
    request.tab_counts = counts  # type: ignore[attr-defined]
    return not namespaces <= reached


def list_tabs(request: HttpRequest) -> list[str]:
    """Those that the reader may open."""
    sees, is_all = viewable(request.user), reaches_instance(reached_namespaces(request))
    return [
        tab for tab, what in TABS.items() if (what is None or what in sees) and (is_all or tab not in ABOUT_INSTANCE)
    ]


def require_reader(
    what: str | None = None, methods: tuple[str, ...] = READ_METHODS, *, about_instance: bool = False
) -> Callable[[View], View]:
    """A page of the admin for staff who may view what it shows; where that is None, for whoever may view anything."""

    def guarded(view: View) -> View:
        @wraps(view)
        def show_to_reader(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if what:
                require_permission(request, VIEWS[what])
            elif not viewable(request.user):
                raise PermissionDenied(f"This needs one of the permissions {', '.join(VIEWS.values())}.")
            if about_instance:
                require_instance(request)
            # Pages are in English and in UTC, also in a project that speaks otherwise: a coordinate has no comma.
            with translation.override("en"), timezone.override(UTC):
                if is_hidden(request, kwargs):
                    return show_not_found(request, what or "")
                return answer(request, *args, **kwargs)

        answer = require_http_methods(methods)(view)
        return admin.site.admin_view(show_to_reader)

    return guarded


HOME = ("Instance", "instance:overview")
"""Where every trail begins."""


def show_not_found(request: HttpRequest, what: str, plural: str = "") -> HttpResponse:
    """Nothing has this id, or not any more."""
    shown = {"title": f"Unknown {what}", "trail": [HOME], "what": what, "list": f"instance:{plural or what + 's'}"}
    return render_page(request, "unknown", shown, status=404)


def render_page(
    request: HttpRequest, name: str, shown: dict[str, Any], status: int = 200, lives: bool = True
) -> HttpResponse:
    """The page, or for a poll only the part of it that lives."""
    live, tabs = f"admin/instance/_{name}.html", list_tabs(request)
    counts = shown.pop("tab_counts", getattr(request, "tab_counts", None))
    if counts is None:
        counts = tab_counts(reached_namespaces(request))
    shown = {
        "live": live,
        "sees": viewable(request.user),
        "tabs": present_tabs(tabs, counts),
        "tab": TAB_OF_PAGE.get(name, name),
        **shown,
    }
    if is_poll(request) and lives:
        return render(request, "admin/instance/poll.html", shown, status=status)
    poll = poll_interval(request)
    if "filter" in shown:
        offer_namespaces(request, shown)
    context = {
        **admin.site.each_context(request),
        "is_nav_sidebar_enabled": False,  # these pages have tabs of their own, and all of the width
        "keys": [(key, tab, tab_url(tab)) for key, tab in KEYS.items() if tab in tabs],
        "lives": lives and status == 200,
        "poll": poll,
        "polls": POLL_INTERVALS.items(),
        "legends": explain_states(name) if status == 200 else "",
        # Pages that do not refresh are as old as they say, and nothing is wrong.
        "stale_after": max(3 * conf().interval, 3 * int(poll)) if poll != "0" else 0,
        **shown,
    }
    return render(request, "admin/instance/base.html", context, status=status)


@cache
def explain_states(page: str) -> str:
    """The states that a page shows, with what they mean: ever the same."""
    return render_to_string("admin/instance/_legends.html", {"legends": LEGENDS.get(page, [])})


def offer_namespaces(request: HttpRequest, shown: dict[str, Any]) -> None:
    """In the filter of a page; where there is but one, it says nothing of namespaces."""
    chosen = shown["filter"]
    if "namespace" not in chosen.fields:
        return
    reached, choices = reached_namespaces(request), shown.get("choices", {})
    known = choices.get("namespace") or known_namespaces(look=not chosen.chosen_values)
    known = known if reached is None else sorted(reached)
    if len(known) > 1 or "namespace" in chosen.chosen_values:
        shown["choices"] = {**choices, "namespace": known}
    else:
        del chosen.fields["namespace"]


def is_poll(request: HttpRequest) -> bool:
    """Whether a page asks for what has changed in it."""
    return bool(HtmxDetails(request))  # no middleware of a project is asked for


def poll_interval(request: HttpRequest) -> str:
    """How often this reader's pages refresh, in seconds; kept by the browser, for each user of it."""
    chosen = request.COOKIES.get(f"poll-{request.user.pk}", "")
    return chosen if chosen in POLL_INTERVALS else "3"


@require_reader(methods=("POST",))
def choose_poll_interval(request: HttpRequest) -> HttpResponse:
    """`POST poll/`: how often pages refresh, from now on."""
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
