"""The pages of executions and triggers."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.actions.jobs import EXECUTION_ACTIONS
from controlplane.console.actions.servers import offered
from controlplane.console.charts.steps import chart, drawn
from controlplane.console.presenters.jobs import action_said
from controlplane.console.presenters.words import ago, left, moment, until
from controlplane.console.selectors.filters import ExecutionFilter, as_uuid
from controlplane.console.selectors.listing import listed
from controlplane.console.views.jobs import size, text
from controlplane.console.views.not_found import HOME, unknown
from controlplane.console.views.page import HtmxRequest, for_readers, page
from jobs import execution_selectors as selectors
from jobs import states
from jobs.errors import ExecutionUnknown
from jobs.states import ExecutionState, JobState

FROM_THE_LEFT = [
    JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED, JobState.SKIPPED,
    JobState.RUNNING, JobState.CLAIMED, JobState.PENDING, JobState.BLOCKED,
]  # fmt: skip
A_PAGE, DRAWN, LISTED, EVENTS_SHOWN = 50, 80, 200, 100


@for_readers("execution")
def executions(request: HtmxRequest) -> HttpResponse:
    """Executions, latest first, a page at a time; `?before=` an id goes on."""
    chosen = ExecutionFilter(request.GET)
    before = as_uuid(request.GET.get("before"))
    found = listed(chosen, selectors.executions(), selectors.executions_page, before, A_PAGE, "execution")
    shown = {
        "title": "Executions",
        "trail": [HOME],
        "filter": chosen,
        "before": before,
        "older": found.older,
        "searched": found.searched,
        "executions": [execution_told(row) for row in found.rows],
        "actions": offered(request, EXECUTION_ACTIONS),
        "folder": "executions",
        "matching": "",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return page(request, "executions", shown)


@for_readers("execution")
def execution(request: HtmxRequest, execution: UUID) -> HttpResponse:
    """One execution: its steps as a graph and as lanes, and what the control plane did in it."""
    try:
        found: Any = selectors.execution_in_short(execution)
    except ExecutionUnknown:
        return unknown(request, "execution")
    steps: list[Any] = list(selectors.telling_steps(execution, LISTED))
    own, hooks = [step for step in steps if not step.is_hook], [step for step in steps if step.is_hook]
    is_whole = sum(found.counts.values()) <= DRAWN
    end = max(
        [found.finished_at or found.now, *(hook.finished_at or found.now for hook in hooks if hook.attempt_count)]
    )
    shown = {
        "title": f"Execution {found.name}",
        "trail": [HOME, ("Executions", "instance:executions")],
        **execution_told(found),
        "error": found.error,
        "actions": [("executions", action) for action in offered(request, EXECUTION_ACTIONS, found)],
        "graph": drawn(own) if is_whole else None,
        "chart": chart(found.created_at, end, steps[:DRAWN], found.now),
        "steps": [step_told(step) for step in own],
        "hooks": [step_told(step) for step in hooks],
        "left_out": max(0, sum(found.counts.values()) - len(own)),
        "events": [(event, moment(event.at, found.now)) for event in selectors.last_events(execution, EVENTS_SHOWN)],
        "inputs": text(found.inputs) if found.inputs else None,
        "inputs_left_out": size(found.inputs),
    }
    return page(request, "execution", shown)


def execution_told(found: Any) -> dict[str, Any]:
    """An execution as the lists show it: how far it has come, as shares of its steps."""
    total = sum(found.counts.values()) or 1
    shares, at = [], 0.0
    for state in FROM_THE_LEFT:
        if count := found.counts.get(state, 0):
            shares.append((state, count, f"{at:.2f}%", f"{100 * count / total:.2f}%"))
            at += 100 * count / total
    return {
        "it": found,
        "made": ago(found.created_at, found.now),
        "finished": found.finished_at and ago(found.finished_at, found.now),
        "shares": shares,
        "ended": sum(found.counts.get(state, 0) for state in states.TERMINAL),
        "total": sum(found.counts.values()),
        "timeout": found.timeout_seconds
        and found.state == ExecutionState.RUNNING
        and left(found.timeout_seconds - (found.now - found.created_at).total_seconds(), found.now),
    }


def step_told(step: Any) -> dict[str, Any]:
    return {"it": step, "what": action_said(step.action), "needs": [key for key in step.depends_on if key]}


@for_readers("trigger")
def triggers(request: HtmxRequest) -> HttpResponse:
    """Triggers: when each is due next, and what came of its last slots."""
    shown = {
        "title": "Triggers",
        "trail": [HOME],
        "triggers": [trigger_told(trigger) for trigger in selectors.triggers()[:LISTED]],
        "may_add": request.user.has_perm("jobs.add_trigger"),
        "may_change": request.user.has_perm("jobs.change_trigger"),
    }
    return page(request, "triggers", shown)


def trigger_told(trigger: Any) -> dict[str, Any]:
    return {
        "it": trigger,
        "schedule": trigger.cron or f"every {trigger.interval_seconds:g} s",
        "due": trigger.next_slot_at and due(trigger.next_slot_at, trigger.now),
        "slots": [(slot, ago(slot.slot, trigger.now)) for slot in trigger.last_slots],
    }


def due(at: datetime, now: datetime) -> SafeString:
    return format_html("in {}", until(at, now)) if at > now else SafeString("due now")
