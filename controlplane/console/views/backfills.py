"""Pages that begin and stop a backfill of a trigger. The page of the trigger lists its backfills."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.actions.backfills import BEGIN, PERMISSION, STOP, BackfillForm
from controlplane.console.actions.confirmation import render_confirmation
from controlplane.console.actions.servers import OptionalNoteForm, request_actor
from controlplane.console.page import FORM_METHODS, require_permission, require_reader, show_not_found
from controlplane.core.problems import Problem
from jobs.models import Backfill, Trigger
from jobs.services import backfills
from jobs.trigger_errors import WrongPeriod


@require_reader("trigger", FORM_METHODS)
def add_backfill(request: HttpRequest, trigger: UUID) -> HttpResponse:
    """Show and process the form of a new backfill."""
    require_permission(request, PERMISSION)
    row = Trigger.objects.filter(pk=trigger).first()
    if row is None:
        return show_not_found(request, "trigger")
    form = BackfillForm(request.POST if request.method == "POST" else None)
    problem = ""
    if form.is_valid():
        given, note, key = form.period, form.cleaned_data["note"], form.cleaned_data["key"]
        try:
            begun, _ = backfills.begin_backfill(
                trigger, given["from"], given["to"], given["max_running"], request_actor(request), note=note,
                key=key or None,
            )  # fmt: skip
        except WrongPeriod as wrong:
            form.add_error(next(iter(wrong.facts["errors"])), wrong.detail)
        except Problem as refused:
            problem = refused.detail
        else:
            messages.success(request, f"The backfill has {begun.total} slots.")
            return redirect("instance:trigger", trigger)
    return confirm(request, f"Backfill of {row.name}", BEGIN, form, trigger, problem)


@require_reader("trigger", FORM_METHODS)
def stop_backfill(request: HttpRequest, trigger: UUID, backfill: UUID) -> HttpResponse:
    """Confirm and perform the stop of a backfill."""
    require_permission(request, PERMISSION)
    row = Backfill.objects.select_related("trigger").filter(pk=backfill, trigger=trigger).first()
    if row is None:
        return show_not_found(request, "backfill", "triggers")
    form = OptionalNoteForm(request.POST if request.method == "POST" else None)
    problem = ""
    if form.is_valid():
        try:
            backfills.stop_backfill(trigger, backfill, request_actor(request), form.cleaned_data["note"])
        except Problem as refused:
            problem = refused.detail
        else:
            messages.success(request, "The backfill is stopped.")
            return redirect("instance:trigger", trigger)
    return confirm(request, f"Stop the backfill of {row.trigger.name}", STOP, form, trigger, problem)


def confirm(request: HttpRequest, title: str, action: Any, form: Any, trigger: UUID, problem: str) -> HttpResponse:
    back = reverse("instance:trigger", args=[trigger])
    return render_confirmation(
        request, title, action, form, back, problem, tab="triggers", button=action.label, would=1, total=1
    )
