"""Pages of triggers: the list, and one trigger with its slots."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.agent.secrets.values import mask
from controlplane.console.actions.backfills import PERMISSION
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.actions.trigger_form import (
    format_json,
    list_problems,
)
from controlplane.console.actions.triggers import DELETE_ACTION, TRIGGER_ACTIONS
from controlplane.console.formatting import format_moment, time_since, time_until
from controlplane.console.page import (
    HOME,
    render_page,
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
from controlplane.core.durations import describe_duration
from jobs.choices import HoldOf, Missed, Overlap
from jobs.models import Trigger
from jobs.schedules import find_zone, start_delay, upcoming_slots
from jobs.selectors.triggers import backfills_with_counts, slots_page, trigger_details, triggers_with_slots
from jobs.trigger_errors import TriggerUnusable

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
