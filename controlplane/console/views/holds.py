"""Pages of holds: the list, the form that creates one, and the release."""

from collections.abc import Collection
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.holds import CREATE, PERMISSION, RELEASE, HoldForm
from controlplane.console.actions.jobs import JOB_ACTIONS
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
)
from controlplane.console.presenters.holds import present_hold
from controlplane.core.problems import Problem
from jobs.choices import HoldOf
from jobs.selectors.holds import holds_in_force, holds_with_parked
from jobs.services import holds
from liveness.selectors.clock import database_time
from liveness.selectors.namespaces import known_namespaces, reaches_instance

HOLDS_SHOWN = 200
CANCEL = JOB_ACTIONS["cancel"]


def holding_namespaces(request: HttpRequest) -> frozenset[str] | None:
    """Return the namespaces whose holds the user reaches. None means all."""
    reached = reached_namespaces(request)
    return None if reaches_instance(reached) else reached


@require_reader("job")
def show_holds(request: HttpRequest) -> HttpResponse:
    """Show the holds that have not ended, latest first."""
    now = database_time()
    rows = holds_with_parked(holds_in_force(holding_namespaces(request)).order_by("-pk")[: HOLDS_SHOWN + 1])
    shown = {
        "title": "Holds",
        "trail": [HOME],
        "holds": [present_hold(row, now) for row in rows[:HOLDS_SHOWN]],
        "more": len(rows) > HOLDS_SHOWN and HOLDS_SHOWN,
        "may": request.user.has_perm(PERMISSION),
        "may_kill": request.user.has_perms([PERMISSION, CANCEL.permission]),
    }
    return render_page(request, "holds", shown)


@require_reader("job", FORM_METHODS)
def add_hold(request: HttpRequest) -> HttpResponse:
    """Show and process the form of a new hold. `?kind=` and `?value=` fill it in."""
    require_permission(request, PERMISSION)
    reached = holding_namespaces(request)
    form = HoldForm(
        request.POST if request.method == "POST" else None,
        initial={name: request.GET[name] for name in ("kind", "value", "namespace") if name in request.GET},
        namespaces=list_namespaces(reached),
        reached=reached,
    )
    if not form.is_valid():
        return render_confirmation(
            request, "Hold work", CREATE, form, reverse("instance:holds"), tab="holds", button="Hold", would=1, total=1
        )
    given = form.cleaned_data
    held, _ = holds.create_hold(
        HoldOf(given["kind"]), given["value"], request_actor(request), given["note"],
        mode=given["mode"], seconds=given["duration"], namespace=given["namespace"] or None, key=given["key"] or None,
    )  # fmt: skip
    messages.success(request, f"On hold: {held}.")
    return redirect("instance:holds")


def list_namespaces(reached: Collection[str] | None) -> list[str]:
    """Return the namespaces that a hold may be limited to; the empty one means all."""
    return ["", *known_namespaces()] if reached is None else sorted(reached)


@require_reader("job", FORM_METHODS)
def release_hold(request: HttpRequest, hold: UUID) -> HttpResponse:
    """Confirm and perform the release of a hold."""
    require_permission(request, PERMISSION)
    reached = holding_namespaces(request)
    row = holds_in_force(reached).filter(pk=hold).first()
    if row is None:
        return show_not_found(request, "hold")
    form = OptionalNoteForm(request.POST if request.method == "POST" else None)
    problem = ""
    if form.is_valid():
        try:
            holds.release_hold(hold, request_actor(request), form.cleaned_data["note"], reached)
        except Problem as refused:
            problem = refused.detail
        else:
            messages.success(request, f"Released: {row}.")
            return redirect("instance:holds")
    return render_confirmation(
        request, f"Release the hold: {row}", RELEASE, form, reverse("instance:holds"), problem, tab="holds",
        button="Release", would=1, total=1,
    )  # fmt: skip
