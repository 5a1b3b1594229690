"""Pages of maintenance and of the brake: the current state, the actions and the history of each."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.maintenance import ENTER, EXIT, RELEASE, InstanceAction
from controlplane.console.actions.servers import request_actor
from controlplane.console.formatting import time_since
from controlplane.console.page import FORM_METHODS, HOME, render_page, require_permission, require_reader
from controlplane.console.presenters.maintenance import present_brake, present_scopes
from controlplane.console.selectors.filters.servers import ScopeFilter
from controlplane.console.selectors.listing import link_to_older
from controlplane.core.durations import describe_duration
from controlplane.core.model_fields import ObservedNow
from controlplane.core.problems import Problem
from liveness.conf import conf
from liveness.models import DEFAULT_NAMESPACE, Brake, Instance
from liveness.selectors.clock import database_time
from liveness.selectors.clusters import list_maintenances, present_clusters
from liveness.selectors.counts import server_counts_by_type
from liveness.selectors.events import events_of_subjects
from liveness.services import maintenance
from liveness.states import ServerType, Subject

EVENTS_A_PAGE = 50
MAINTENANCE_EVENTS = ("maintenance_enter", "maintenance_exit")
BRAKE_EVENTS = ("brake_engaged", "brake_released", "brake_ended")


@require_reader("server", about_instance=True)
def show_maintenance(request: HttpRequest) -> HttpResponse:
    """Show for the control plane and each cluster whether maintenance is on, with its end, actor, note and history."""
    chosen = ScopeFilter(request.GET)
    now = database_time()
    scopes = present_scopes(list_maintenances(), server_counts_by_type(), now)
    shown = {
        "title": "Maintenance",
        **offer_clusters(chosen, [scope["cluster"] for scope in scopes if scope["cluster"]]),
        "scopes": [scope for scope in scopes if chosen.cluster_name in ("", scope["cluster"])],
        "may": request.user.has_perm(ENTER.permission),
        **present_history(request, chosen, Subject.INSTANCE, MAINTENANCE_EVENTS, now),
    }
    return render_page(request, "maintenance", {"trail": [HOME], **shown})


@require_reader("server", about_instance=True)
def show_brake(request: HttpRequest) -> HttpResponse:
    """Show which server types the brake holds, where and since when, with its history."""
    chosen = ScopeFilter(request.GET)
    now = database_time()
    brakes = Brake.objects.annotate(held_for=ObservedNow() - F("engaged_observed")).order_by(
        "type", "namespace", "cluster"
    )
    if chosen.cluster_name:
        brakes = brakes.filter(cluster__in=["", chosen.cluster_name])
    settings = conf()
    shown = {
        "title": "Brake",
        **offer_clusters(chosen, present_clusters()),
        "scope": chosen.cluster_name,
        "brakes": [present_brake(brake, now) for brake in brakes],
        "may": request.user.has_perm(RELEASE.permission),
        "minimum": settings.brake_minimum,
        "share": f"{100 * settings.brake_share:.3g} %",
        "hold": describe_duration(settings.brake_max_hold),
        **present_history(request, chosen, Subject.BRAKE, BRAKE_EVENTS, now),
    }
    return render_page(request, "brake", {"trail": [HOME], **shown})


def offer_clusters(chosen: ScopeFilter, known: list[str]) -> dict[str, Any]:
    """Return the cluster filter, or nothing if there is only one cluster."""
    return {"filter": chosen, "choices": {"cluster": known}} if chosen.words or len(known) > 1 else {}


def present_history(
    request: HttpRequest, chosen: ScopeFilter, subject: Subject, actions: tuple[str, ...], now: datetime
) -> dict[str, Any]:
    """Return one page of past actions on subjects of this kind, latest first."""
    text = request.GET.get("before", "")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    events = events_of_subjects(subject, actions, chosen.cluster_name, before, EVENTS_A_PAGE + 1)
    return {
        "history": [(event, time_since(event.at, now)) for event in events[:EVENTS_A_PAGE]],
        "before": before,
        "older": len(events) > EVENTS_A_PAGE and link_to_older(chosen, events[EVENTS_A_PAGE - 1].pk),
    }


@require_reader("server", FORM_METHODS, about_instance=True)
def enter_maintenance(request: HttpRequest) -> HttpResponse:
    """Stop giving new work to workers of the cluster in `?cluster=`, or to all workers without it."""
    scope = request.GET.get("cluster", "")
    return confirm(
        request, ENTER, scope, "maintenance", lambda: maintenance.ensure_may_enter_maintenance(scope),
        lambda actor, form: maintenance.enter_maintenance(actor, form["note"], form["duration"], scope),
    )  # fmt: skip


@require_reader("server", FORM_METHODS, about_instance=True)
def exit_maintenance(request: HttpRequest) -> HttpResponse:
    """Give work again to workers of the cluster in `?cluster=`, or to all workers without it."""
    scope = request.GET.get("cluster", "")
    return confirm(
        request, EXIT, scope, "maintenance", lambda: maintenance.ensure_may_exit_maintenance(scope),
        lambda actor, form: maintenance.exit_maintenance(actor, form["note"], scope),
    )  # fmt: skip


@require_reader("server", FORM_METHODS, about_instance=True)
def release_brake(request: HttpRequest) -> HttpResponse:
    """Release the brake for `?type=`, `?cluster=` and `?namespace=`. Without them, release all brakes."""
    type, cluster, namespace = (request.GET.get(name, "") for name in ("type", "cluster", "namespace"))
    if type and type not in list(ServerType):
        raise Http404(f"There is no server type {type}.")
    is_of_other = namespace not in ("", DEFAULT_NAMESPACE)
    words = (type, cluster and f"cluster {cluster}", f"namespace {namespace}" if is_of_other else "")
    of = " of ".join(filter(None, words))
    return confirm(
        request, RELEASE, of, "brake",
        lambda: maintenance.ensure_may_release_brake(maintenance.engaged_brakes(type, cluster, namespace)),
        lambda actor, form: maintenance.release_brake(actor, form["note"], type, cluster, namespace),
    )  # fmt: skip


def confirm(
    request: HttpRequest,
    action: InstanceAction,
    scope: str,
    tab: str,
    guard: Callable[[], None],
    perform: Callable[[str, dict[str, Any]], Any],
) -> HttpResponse:
    """Show the effect of an action (GET), or perform it (POST). Return 409 if it no longer applies."""
    require_permission(request, action.permission)
    form: Any = action.form(request.POST if request.method == "POST" else None)
    problem, applies, user = "", True, request.user
    try:
        guard()
        if form.is_valid():
            perform(request_actor(request), form.cleaned_data)
            write_log_entry(user.pk, Instance.objects.get(), action.label, form.cleaned_data["note"])
            messages.success(request, f"{action.label}: done.")
            return redirect(f"instance:{tab}")
    except Problem as refusal:
        problem, applies = refusal.detail if form.is_bound else "", False
    where = scope if tab == "brake" else f"cluster {scope}" if scope else "the whole control plane"
    return render_confirmation(
        request, f"{action.label}: {where}" if where else action.label, action, form, reverse(f"instance:{tab}"),
        problem, tab=tab, button=action.label, would=int(applies), total=1,
    )  # fmt: skip
