"""Form that adds or changes a trigger."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.console.actions.servers import request_actor
from controlplane.console.actions.trigger_form import (
    FIRST_FIELDS,
    TriggerForm,
    describe_fields,
    digest,
    list_problems,
    list_time_zones,
)
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
)
from controlplane.console.views.triggers import ADD, EDIT, present_upcoming
from controlplane.core.database import transaction
from controlplane.core.problems import Problem
from jobs.models import Trigger
from jobs.services import triggers
from jobs.trigger_errors import TriggerNameTaken
from liveness.errors import ChangedSinceSeen
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.clock import database_time
from liveness.selectors.namespaces import known_namespaces, namespace_of_new


@require_reader("trigger", FORM_METHODS)
def add_trigger(request: HttpRequest) -> HttpResponse:
    """Show and process the form for a new trigger."""
    require_permission(request, ADD)
    return answer_form(request, None)


@require_reader("trigger", FORM_METHODS)
def edit_trigger(request: HttpRequest, trigger: UUID) -> HttpResponse:
    """Show and process the form for an existing trigger."""
    require_permission(request, EDIT)
    row = Trigger.objects.filter(pk=trigger).first()
    return show_not_found(request, "trigger") if row is None else answer_form(request, row)


def answer_form(request: HttpRequest, trigger: Trigger | None) -> HttpResponse:
    """Show the form (GET), preview its slots (POST with `look`), or store it (POST)."""
    reached = reached_namespaces(request)
    first = {**FIRST_FIELDS, "namespace": namespace_of_new(reached)}
    form = TriggerForm(
        request.POST if request.method == "POST" else None,
        initial=first if trigger is None else describe_fields(trigger),
        trigger=trigger,
        namespaces=list_namespaces(reached) if trigger is None else [],
    )
    problem = ""
    if form.is_valid() and "look" not in request.POST:
        try:
            stored = store_form(request, form, trigger)
        except TriggerNameTaken as taken:
            form.add_error("name", taken.detail)
        except Problem as refused:
            problem = refused.detail
        else:
            return redirect("instance:trigger", stored.pk)
    return show_form(request, form, trigger, problem)


def store_form(request: HttpRequest, form: TriggerForm, trigger: Trigger | None) -> Trigger:
    """Store the trigger, and write an entry to the admin log.

    Raise ChangedSinceSeen if the trigger was changed after the form was opened.
    """
    user: Any = request.user
    by, note = request_actor(request), form.cleaned_data["note"]
    with transaction.atomic():
        if trigger is None:
            namespace = form.cleaned_data.get("namespace") or namespace_of_new(reached_namespaces(request))
            stored = triggers.create_trigger({**form.data_of_trigger, "namespace": namespace}, by, note)
        else:
            if digest(triggers.lock_trigger(trigger.pk)) != form.cleaned_data["seen"]:
                raise ChangedSinceSeen("The trigger was changed after you opened this form. Open the form again.")
            stored = triggers.change_trigger(trigger.pk, form.data_of_trigger, by, note)
        flag, label = (ADDITION, "Added") if trigger is None else (CHANGE, "Changed")
        message = f"{label}: {note}".rstrip(": ")
        LogEntry.objects.log_actions(user.pk, [stored], flag, message, single_object=True)
    messages.success(request, f"{label}: trigger {stored.name}.")
    return stored


def list_namespaces(reached: frozenset[str] | None) -> list[str]:
    """Return the namespaces in which the user may add a trigger. `reached` is None if they may view all."""
    return sorted({DEFAULT_NAMESPACE, *known_namespaces()} if reached is None else reached)


def show_form(request: HttpRequest, form: TriggerForm, trigger: Trigger | None, problem: str = "") -> HttpResponse:
    now = database_time()
    draft = trigger or Trigger(created_at=now)
    if form.is_bound and form.data_of_trigger:
        draft = Trigger(**form.data_of_trigger, created_at=draft.created_at, enabled=False)
    trail: list[Any] = [HOME, ("Triggers", "instance:triggers")]
    shown = {
        "title": f"Edit trigger {trigger.name}" if trigger else "New trigger",
        "trail": trail,
        "form": form,
        "zones": list_time_zones(),
        "problem": problem,
        "problems": list_problems(trigger) if trigger and not form.is_bound else [],
        "it": trigger,
        "upcoming": present_upcoming(draft, now) if draft.cron or draft.interval_seconds else [],
    }
    return render_page(request, "trigger_form", shown, status=409 if problem else 200, lives=False)
