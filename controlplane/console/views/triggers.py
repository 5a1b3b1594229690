"""Pages of triggers: the list, one trigger with its slots, and the form that adds or changes one."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secrets.values import mask
from controlplane.console.actions.backfills import PERMISSION
from controlplane.console.actions.servers import list_permitted_actions, request_actor
from controlplane.console.actions.trigger_form import (
    FIRST_FIELDS,
    TriggerForm,
    describe_fields,
    digest,
    format_json,
    list_problems,
    list_time_zones,
)
from controlplane.console.actions.triggers import DELETE_ACTION, TRIGGER_ACTIONS
from controlplane.console.formatting import format_moment, time_since, time_until
from controlplane.console.page import (
    FORM_METHODS,
    HOME,
    reached_namespaces,
    render_page,
    require_permission,
    require_reader,
    show_not_found,
    within_reach,
)
from controlplane.console.presenters.action_events import present_action_events
from controlplane.console.presenters.holds import present_holds
from controlplane.console.presenters.jobs import describe_action, describe_schedule, short_id
from controlplane.console.presenters.schedules import describe_schedule_in_words
from controlplane.console.selectors.filters.executions import SlotFilter, TriggerListFilter
from controlplane.console.views.activity import parse_moment
from controlplane.core.database import transaction
from controlplane.core.durations import describe_duration
from controlplane.core.problems import Problem
from jobs.errors import TriggerNameTaken, TriggerUnusable
from jobs.models import Trigger
from jobs.schedules import find_zone, start_delay, upcoming_slots
from jobs.selectors.triggers import backfills_with_counts, slots_page, trigger_details, triggers_with_slots
from jobs.services import triggers
from jobs.states import HoldOf, Missed, Overlap
from liveness.errors import ChangedSinceSeen
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.clock import database_time
from liveness.selectors.namespaces import known_namespaces, namespace_of_new

TRIGGERS_SHOWN, SLOTS_SHOWN, SLOTS_A_PAGE, UPCOMING_SHOWN, STRIP_SHOWN, BACKFILLS_SHOWN = 200, 8, 50, 5, 30, 5
ADD, EDIT = "jobs.add_trigger", "jobs.change_trigger"


@require_reader("trigger")
def show_triggers(request: HttpRequest) -> HttpResponse:
    """Show triggers with their next slot and the outcomes of their last slots."""
    chosen = TriggerListFilter(request.GET)
    rows = list(chosen.filter_rows(within_reach(request, triggers_with_slots()))[: TRIGGERS_SHOWN + 1])
    shown = {
        "title": "Triggers",
        "trail": [HOME],
        "filter": chosen,
        "triggers": [present_trigger(trigger) for trigger in rows[:TRIGGERS_SHOWN]],
        "more": len(rows) > TRIGGERS_SHOWN and TRIGGERS_SHOWN,
        "actions": list_permitted_actions(request, TRIGGER_ACTIONS),
        "folder": "triggers",
        "matching": "",
        "may_add": request.user.has_perm(ADD),
    }
    return render_page(request, "triggers", shown)


def present_trigger(trigger: Any) -> dict[str, Any]:
    last, *before = [*trigger.last_slots[:SLOTS_SHOWN]] or [None]
    return {
        "it": trigger,
        "schedule": describe_schedule(trigger),
        "in_words": describe_schedule_in_words(trigger),
        "due": trigger.next_slot_at and describe_due_time(trigger.next_slot_at, trigger.now),
        "last": last,
        "ago": last and time_since(last.slot, trigger.now),
        "before": before,
        "note": last and last.note,
    }


def describe_due_time(at: datetime, now: datetime) -> SafeString:
    return format_html("in {}", time_until(at, now)) if at > now else SafeString("due now")


@require_reader("trigger")
def show_trigger(request: HttpRequest, trigger: UUID) -> HttpResponse:
    """Show one trigger with its next and past slots. `?before=` a moment shows the next page of slots."""
    row = trigger_details(trigger)
    if row is None:
        return show_not_found(request, "trigger")
    chosen = SlotFilter(request.GET)
    before = parse_moment(request.GET.get("before"))
    slots = list(slots_page(trigger, before, chosen.chosen_values.get("outcome"), SLOTS_A_PAGE + 1))
    older = slots[SLOTS_A_PAGE - 1].slot if len(slots) > SLOTS_A_PAGE else None
    shown = {
        "title": f"Trigger {row.name}",
        "trail": [HOME, ("Triggers", "instance:triggers")],
        "filter": chosen,
        "it": row,
        "schedule": describe_schedule(row),
        "in_words": describe_schedule_in_words(row),
        "problems": list_problems(row),
        "holds": present_holds(HoldOf.TRIGGER, trigger, row.now),
        "due": row.next_slot_at and describe_due_time(row.next_slot_at, row.now),
        "upcoming": present_upcoming(row, row.now),
        "what": row.action and describe_action(row.action),
        "delay": row.jitter_seconds and describe_duration(start_delay(row)),
        "jitter": describe_duration(row.jitter_seconds),
        "missed": Missed(row.missed).meaning,
        "overlap": Overlap(row.overlap).meaning,
        "timeout": describe_duration(row.timeout_seconds),
        "slots": [present_slot(slot, row.now) for slot in slots[:SLOTS_A_PAGE]],
        "strip": [] if before or chosen.words else slots[STRIP_SHOWN - 1 :: -1],
        "backfills": list_backfills(row) if row.has_backfills else [],
        "backfill": row.on_signal is None
        and request.user.has_perm(PERMISSION)
        and reverse("instance:backfill_add", args=[trigger]),
        "before": before,
        "older": older and f"?{chosen.query}{'&' if chosen.query else ''}before={older:%Y-%m-%dT%H:%M:%S.%fZ}",
        "actions": [
            ("triggers", action) for action in list_permitted_actions(request, TRIGGER_ACTIONS | DELETE_ACTION, row)
        ],
        "edit": request.user.has_perm(EDIT) and reverse("instance:trigger_edit", args=[trigger]),
        "action_events": present_action_events(row),
        "texts": [
            (name, format_json(mask(value)))
            for name, value in (
                ("Evaluation", row.action), ("Payload", row.payload), ("Execution", row.execution)
            )
            if value is not None
        ],
    }  # fmt: skip
    return render_page(request, "trigger", shown)


def list_backfills(trigger: Any) -> list[dict[str, Any]]:
    """Return the last backfills of a trigger, latest first."""
    rows = backfills_with_counts(trigger.backfills.order_by("-pk")[:BACKFILLS_SHOWN])
    return [
        {
            "it": row,
            "start": format_moment(row.start_at, trigger.now),
            "end": format_moment(row.end_at, trigger.now),
            "begun": time_since(row.created_at, trigger.now),
        }
        for row in rows
    ]


def present_upcoming(trigger: Trigger, now: datetime) -> list[tuple[str, SafeString, SafeString]]:
    """Return the next slots: in the trigger's time zone, in UTC, and the time until then.

    The list is empty if the schedule is no longer valid.
    """
    try:
        zone = find_zone(trigger.timezone if trigger.cron is not None else "UTC")
        slots = upcoming_slots(trigger, now, UPCOMING_SHOWN)
    except TriggerUnusable:
        return []
    return [
        (f"{at.astimezone(zone):%a %b %d %H:%M:%S %Z}", format_moment(at, now), describe_due_time(at, now))
        for at in slots
    ]


def present_slot(slot: Any, now: datetime) -> dict[str, Any]:
    return {
        "it": slot,
        "at": format_moment(slot.slot, now),
        "ago": time_since(slot.slot, now),
        "job": slot.job_state and short_id(slot.job_id),
    }


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
