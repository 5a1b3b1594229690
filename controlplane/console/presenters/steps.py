"""Steps of an execution as its page shows them: failed steps, graph, lanes, and a table in pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from controlplane.console.charts.folds import (
    FAILURES,
    MEMBERS_SHOWN,
    Fold,
    Row,
    count_by_state,
    count_steps,
    fold_alike,
    fold_steps,
)
from controlplane.console.charts.step_graph import (
    MOST_BOXES,
    Graph,
    build_folded_graph,
    build_graph,
    describe_items,
)
from controlplane.console.charts.step_lanes import build_steps_chart, is_within
from controlplane.console.formatting import shorten
from controlplane.console.presenters.jobs import REASON_LENGTH, describe_action, describe_event
from controlplane.console.selectors.step_look import StepLook
from controlplane.core.durations import describe_exactly
from controlplane.core.statements import fetch_result_sets
from jobs.choices import HoldOf, HookOf
from jobs.selectors.executions import CountedExecution, Step, measure_progress, steps_in_detail
from jobs.sql import sql
from jobs.sql.rows.step_times import FamilyNeeds
from jobs.states import JobState

STEPS_IN_GRAPH, STEPS_A_PAGE, FAILED_NAMED = 80, 50, 10
STEPS_ALONE = 500
"""Largest number of steps that each have a row in memory. Similar steps of a larger execution share rows."""
FIRST = ["FAILED", "EXPIRED", "CANCELLED", "RUNNING", "CLAIMED", "PENDING"]
"""Order of states in a table of more than one page. States not listed come last."""


@dataclass
class KnownNeeds:
    """Dependencies between the boxes of a graph."""

    by_box: dict[str, list[str]] = field(default_factory=dict)
    """Boxes that each box depends on."""
    steps: int | None = None
    """Number of steps when they were read. None: not read yet."""

    def update(self, rows: Iterable[FamilyNeeds], steps: int) -> None:
        self.by_box, self.steps = {row.box: row.needs for row in rows}, steps


@lru_cache(maxsize=256)
def needs_of_families(execution: UUID) -> KnownNeeds:
    """Return the dependencies that an earlier poll has read. They change only when steps are added."""
    return KnownNeeds()


def present_steps(execution: CountedExecution, look: StepLook) -> dict[str, Any]:
    """Return the steps for the page, the holds of the execution in `held_by`, and set its `counts`.

    The number of rows that are read does not grow with the number of steps.
    """
    begun_at, now = execution.created_at, execution.now
    axis = look.axis(begun_at, execution.finished_at or now)
    needs = needs_of_families(execution.pk)
    times, holds, *found = fetch_result_sets(
        sql.list_step_times, sql.list_holds_of, *([sql.list_family_needs] if needs.steps is None else []),
        execution=execution.pk, kind=HoldOf.EXECUTION, value=str(execution.pk),
        since=axis.start, until=axis.end, opened=list(look.opened), members=MEMBERS_SHOWN,
        state=look.state or None, first=FIRST, skipped=max(0, look.page - 1) * STEPS_A_PAGE, batch=STEPS_A_PAGE,
        most=STEPS_ALONE, boxes=MOST_BOXES,
    )  # fmt: skip
    own = [step for step in times if not step.is_hook]
    execution.counts = count_by_state(own)
    number = measure_progress(execution).total
    matching = execution.counts.get(look.state, 0) if look.state else number
    for rows in found:
        needs.update(rows, number)
    if needs.steps != number and number > STEPS_IN_GRAPH:
        needs.update(sql.list_family_needs.fetch_rows(execution=execution.pk, boxes=MOST_BOXES), number)
    hooks_end = (step.finished_at or now for step in times if step.is_hook and step.begun_at)
    end = max([execution.finished_at or now, *hooks_end])
    total = (end - begun_at).total_seconds()
    axis = look.axis(begun_at, end)
    drawn = [step for step in times if look.is_whole or is_within(step, axis, now)]
    rows = fold_steps(drawn, look.opened)
    hooks = [step.job for step in times if step.is_hook]
    places = {step.place: step.job for step in times if step.place is not None}
    listed = [places[place] for place in sorted(places)]
    failures = count_steps(step for step in own if step.state in FAILURES)
    failed = [step for step in own if step.state in FAILURES and step.steps == 1]
    boxes = own if number <= STEPS_IN_GRAPH else fold_alike(own)
    is_drawn = len(boxes) <= max(STEPS_IN_GRAPH, MOST_BOXES)
    needed = {
        step.job
        for some in (rows, failed[:FAILED_NAMED], boxes if is_drawn else [])
        for step in some
        if not isinstance(step, Fold)
    }.union(listed, hooks)
    details: Any = steps_in_detail(execution.pk, needed)
    chart = build_steps_chart(begun_at, axis, rows, details, now, count_steps(times) - count_steps(drawn))
    for lane in chart.lanes:
        lane.url = look.toggle(lane.fold.id) if lane.fold else ""
    for segment in chart.segments:
        segment.url = look.url("lanes", since=round(segment.since, 3), until=round(segment.until, 3))
    counts = {state: count for state in JobState if (count := execution.counts.get(state, 0))}
    return {
        "look": look,
        "held_by": holds,
        "kept": count_steps(step for step in own if step.is_kept),
        "is_restart": any(details[step].is_kept or details[step].restart_of_id for step in listed),
        "failed": [
            present_failure(details[step.job], look.around(begun_at, step.begun_at or step.free_at, over, total))
            for step in failed[:FAILED_NAMED]
            if (over := step.finished_at)
        ],
        "failed_more": max(0, failures - FAILED_NAMED),
        "failed_url": look.url("steps", state=failed[0].state, page=1) if failed else "",
        "graph": draw_graph(boxes, look, details, needs.by_box) if is_drawn else None,
        "chart": chart,
        "zooms": look.zooms(total),
        "steps": [present_step(details[step], now) for step in listed],
        "hooks": present_hooks([details[hook] for hook in hooks], now),
        "shown_states": [
            ("", "All", number, look.url("steps", state="", page=1)),
            *((state, state, count, look.url("steps", state=state, page=1)) for state, count in counts.items()),
        ],
        "before": look.page > 1 and look.url("steps", page=look.page - 1),
        "after": look.page * STEPS_A_PAGE < matching and look.url("steps", page=look.page + 1),
        "first_listed": (look.page - 1) * STEPS_A_PAGE + 1,
        "last_listed": (look.page - 1) * STEPS_A_PAGE + len(listed),
        "matching": matching,
    }


HOOKS = {
    HookOf.ON_ERROR: ("Failure hooks", "Hooks run only after the execution has failed"),
    HookOf.ON_SUCCESS: ("Success hooks", "Hooks run only after the execution has completed"),
    HookOf.ON_COMPLETE: ("Final hooks", "Hooks run after the execution has completed or failed"),
}
"""Heading and caption of the hooks, by the ends after which they run."""


def present_hooks(hooks: list[Step], now: datetime) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return a heading, a caption and the hooks for each kind of hooks that there is."""
    return [
        (*words, rows)
        for kind, words in HOOKS.items()
        if (rows := [present_step(hook, now) for hook in hooks if hook.hook == kind])
    ]


def draw_graph(rows: Sequence[Row], look: StepLook, details: Any, needs: dict[str, list[str]]) -> Graph | None:
    if any(isinstance(row, Fold) for row in rows):
        return build_folded_graph(rows, lambda fold: look.toggle(fold.id), details, needs)
    return build_graph([details[row.job] for row in rows if not isinstance(row, Fold)])


def present_failure(step: Step, around: str) -> dict[str, Any]:
    error = step.error or {}
    return {
        "it": step,
        "code": error.get("code", step.state),
        "message": shorten(str(error.get("message") or ""), REASON_LENGTH),
        "around": around,
    }


def present_step(step: Any, now: datetime) -> dict[str, Any]:
    attempts = list(step.attempts.all())
    last = attempts[-1] if attempts else None
    seconds = None
    if last is not None and last.started_at:
        seconds = ((last.finished_at or now) - last.started_at).total_seconds()
    elif step.child_execution or step.wait:
        seconds = ((step.finished_at or now) - step.available_at).total_seconds()
    return {
        "it": step,
        "server_state": step.server["state"] if step.server else None,
        "what": describe_action(step.action),
        "items": describe_items(step),
        "waits": describe_event(step.waiting_for, now) if step.waiting_for else "",
        "needs": [key for key in step.depends_on if key],
        "took": describe_exactly(seconds) if seconds is not None else None,
        "log": bool(last),
        # The log of a kept step belongs to the earlier run.
        "did": step.restart_of_id if step.is_kept else step.pk,
    }
