"""Page of one incident, and what people do about it: acknowledge, assign, comment."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.console.actions.incidents import HANDLE, CommentForm, OwnerForm
from controlplane.console.actions.log_entries import write_log_entry
from controlplane.console.actions.servers import request_actor
from controlplane.console.formatting import format_moment
from controlplane.console.page import HOME, render_page, require_permission, require_reader, show_not_found, viewable
from controlplane.console.views.alerts import RULES, present_incident
from controlplane.core.problems import Problem
from jobs.selectors.alerts import events_of_incident, incident_details
from jobs.services import incidents
from liveness.selectors.clock import database_time

OWNERS_OFFERED = 500


@require_reader(about_instance=True)
def show_incident(request: HttpRequest, incident: UUID) -> HttpResponse:
    """Show one incident: what it is about, who handles it, and what was sent."""
    row = find_incident(request, incident)
    return show_not_found(request, "incident", "alerts") if row is None else show_page(request, row)


def find_incident(request: HttpRequest, incident: UUID) -> Any:
    """Return the incident, or None if the user may not view what its rule is about."""
    row = incident_details(incident)
    what, _ = RULES.get(row.rule, ("server", "")) if row else ("", "")
    return row if what in viewable(request.user) else None


def show_page(
    request: HttpRequest, row: Any, problem: str = "", *, owner: Any = None, comment: Any = None
) -> HttpResponse:
    """Show the incident with its forms. `owner` and `comment` are forms with errors."""
    now = database_time()
    shown = {
        "title": row.summary,
        "has_own_head": True,
        "tab": "alerts",
        "trail": [HOME],
        **present_incident(row, now),
        "meaning": RULES.get(row.rule, ("", ""))[1],
        "servers": row.details.get("servers") or [],
        "jobs": row.details.get("jobs") or [],
        "history": [(event, format_moment(event.at, now)) for event in events_of_incident(row.pk)],
        "problem": problem,
    }
    if "server" in viewable(request.user) and request.user.has_perm(HANDLE):
        shown["beside"] = "admin/instance/_incident_forms.html"
        shown["owner_form"] = owner or build_owner_form(None, row)
        shown["comment_form"] = comment or CommentForm()
    return render_page(request, "incident", shown, status=409 if problem else 200)


def build_owner_form(data: Any, row: Any) -> OwnerForm:
    staff = get_user_model()._default_manager.filter(is_staff=True, is_active=True).order_by("pk")[:OWNERS_OFFERED]
    return OwnerForm(data, names=[user.get_username() for user in staff], owner=row.owner)


@require_reader("server", ("POST",), about_instance=True)
def acknowledge_incident(request: HttpRequest, incident: UUID) -> HttpResponse:
    """Acknowledge an incident for the user."""
    name = request.user.get_username()
    return act(
        request, incident, f"Acknowledged by {name}",
        lambda row: incidents.acknowledge_incident(row.pk, name, request_actor(request)),
    )  # fmt: skip


@require_reader("server", ("POST",), about_instance=True)
def assign_incident(request: HttpRequest, incident: UUID) -> HttpResponse:
    """Change the owner of an incident: to the user (`me`), or to the chosen one."""
    require_permission(request, HANDLE)
    row = find_incident(request, incident)
    if row is None:
        return show_not_found(request, "incident", "alerts")
    form = build_owner_form(request.POST, row)
    if not form.is_valid():
        return show_page(request, row, owner=form)
    owner = request.user.get_username() if "me" in request.POST else form.cleaned_data["owner"]
    seen = form.cleaned_data["seen"]
    return act(
        request, incident, f"Owner: {owner or 'none'}",
        lambda row: incidents.assign_incident(row.pk, owner, request_actor(request), seen=seen),
    )  # fmt: skip


@require_reader("server", ("POST",), about_instance=True)
def comment_on_incident(request: HttpRequest, incident: UUID) -> HttpResponse:
    """Add a comment to an incident."""
    require_permission(request, HANDLE)
    form = CommentForm(request.POST)
    if not form.is_valid():
        row = find_incident(request, incident)
        return show_not_found(request, "incident", "alerts") if row is None else show_page(request, row, comment=form)
    note = form.cleaned_data["comment"]
    return act(
        request, incident, "Comment added",
        lambda row: incidents.comment_on_incident(row.pk, request_actor(request), note),
    )  # fmt: skip


def act(request: HttpRequest, incident: UUID, done: str, perform: Callable[[Any], None]) -> HttpResponse:
    """Perform an action on an incident and return to its page. Show a refusal of the service there, as a 409."""
    require_permission(request, HANDLE)
    row = find_incident(request, incident)
    if row is None:
        return show_not_found(request, "incident", "alerts")
    try:
        perform(row)
    except Problem as refused:
        return show_page(request, find_incident(request, incident), refused.detail)
    user: Any = request.user
    write_log_entry(user.pk, row, done, "")
    messages.success(request, f"{done}.")
    return redirect("instance:incident", row.pk)
