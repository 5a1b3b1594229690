"""Pages of executions."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.agent.secrets.values import mask
from controlplane.console.actions.jobs import EXECUTION_ACTIONS
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.formatting import format_moment, seconds_until, time_since, time_until
from controlplane.console.page import HOME, render_page, require_reader, show_not_found, within_reach
from controlplane.console.presenters.action_events import present_action_events
from controlplane.console.presenters.contents import count_left_out, format_json
from controlplane.console.presenters.holds import present_hold
from controlplane.console.presenters.jobs import short_id
from controlplane.console.presenters.steps import present_steps
from controlplane.console.selectors.filters.executions import ExecutionListFilter
from controlplane.console.selectors.listing import build_list_page
from controlplane.console.selectors.step_look import StepLook
from jobs import states
from jobs.execution_errors import ExecutionUnknown
from jobs.selectors.executions import (
    CountedExecution,
    execution_summary,
    executions_page,
    is_past_deadline,
    measure_progress,
    visible_executions,
)
from jobs.states import ExecutionState, JobState

STATES_IN_ORDER = [
    *(state for state in JobState if state in states.TERMINAL),
    *(state for state in reversed(JobState) if state in states.OPEN),
]
EXECUTIONS_A_PAGE, EVENTS_SHOWN = 50, 100


@require_reader("execution")
def show_executions(request: HttpRequest) -> HttpResponse:
    """Show executions, latest first. `?before=` an id shows the next page."""
    chosen = ExecutionListFilter(request.GET)
    listing = build_list_page(
        request,
        chosen,
        within_reach(request, visible_executions()),
        executions_page,
        EXECUTIONS_A_PAGE,
        "execution",
    )
    shown = {
        "title": "Executions",
        "trail": [HOME],
        "filter": chosen,
        "filters": "executions",
        "before": listing.before,
        "older": listing.older,
        "searched": listing.searched,
        "executions": [present_execution(row) for row in listing.rows],
        "actions": list_permitted_actions(request, EXECUTION_ACTIONS),
        "folder": "executions",
        "matching": "",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return render_page(request, "executions", shown)


@require_reader("execution")
def show_execution(request: HttpRequest, execution: UUID) -> HttpResponse:
    """Show one execution: its steps as a graph and as lanes, and its events."""
    try:
        row: Any = execution_summary(execution, EVENTS_SHOWN)
    except ExecutionUnknown:
        return show_not_found(request, "execution")
    inputs, outputs = mask(row.inputs), mask(row.outputs)
    permitted = list_permitted_actions(request, EXECUTION_ACTIONS, row)
    steps = present_steps(row, StepLook.from_address(request.GET))
    shown = {
        "title": f"Execution {row.name}",
        "trail": [HOME, ("Executions", "instance:executions")],
        **present_execution(row),
        **steps,
        "error": row.error,
        "holds": [] if row.finished_at else [present_hold(hold, row.now, str(execution)) for hold in steps["held_by"]],
        "held_back": row.held_back,
        "actions": [("executions", action) for action in permitted if action.name != "restart"],
        "forms": [
            (action.label, reverse("instance:retry", args=[execution]), action.then)
            for action in permitted
            if action.name == "restart"
        ],
        "events": [(event, format_moment(datetime.fromisoformat(event["at"]), row.now)) for event in row.latest_events],
        "action_events": present_action_events(row),
        "inputs": format_json(inputs) if inputs else None,
        "inputs_left_out": count_left_out(inputs),
        "outputs": None if outputs is None else format_json(outputs),
        "outputs_left_out": count_left_out(outputs),
    }
    return render_page(request, "execution", shown, is_over=row.finished_at is not None)


def present_execution(row: CountedExecution) -> dict[str, Any]:
    """Return an execution as the lists show it, with the share of steps in each state."""
    progress = measure_progress(row)
    total = progress.total or 1
    shares, at = [], 0.0
    for state in STATES_IN_ORDER:
        if count := row.counts.get(state, 0):
            shares.append((state, count, f"{at:.2f}%", f"{100 * count / total:.2f}%"))
            at += 100 * count / total
    return {
        "it": row,
        "short_id": short_id(row.pk),
        "made": time_since(row.created_at, row.now),
        "finished": row.finished_at and time_since(row.finished_at, row.now),
        "shares": shares,
        "ended": progress.done,
        "total": progress.total,
        "failures": progress.failed,
        "is_late": is_past_deadline(row),
        "deadline": row.deadline_at and not row.finished_at and time_until(row.deadline_at, row.now),
        "timeout": row.timeout_seconds
        and row.state == ExecutionState.RUNNING
        and not row.limits  # their time counts from their start
        and seconds_until(row.timeout_seconds - (row.now - row.created_at).total_seconds(), row.now),
    }
