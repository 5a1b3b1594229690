"""Page of queues: the jobs that wait and run, by namespace and required tags."""

import json
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

from controlplane.console.actions.holds import PERMISSION
from controlplane.console.charts.sparkline import draw_sparkline
from controlplane.console.formatting import format_tags, link_to_page, time_since
from controlplane.console.page import HOME, reached_namespaces, render_page, require_reader
from controlplane.console.presenters.holds import present_hold_in_json
from controlplane.console.presenters.jobs import TAGS_OF_ACTIONS
from controlplane.console.selectors.filters.queues import QueueListFilter
from controlplane.console.selectors.listing import link_to_older
from jobs.selectors.queues import queues_page_with_rates, read_place, write_place
from jobs.sql.rows.queues import Queue, QueueRate
from jobs.states import JobState
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.clock import database_time

QUEUES_A_PAGE = 100


@require_reader("job")
def show_queues(request: HttpRequest) -> HttpResponse:
    """Show the queues of the namespaces that the user may view. `?before=` a place shows the next page."""
    chosen = QueueListFilter(request.GET)
    before = None
    with suppress(ValueError):
        before = read_place(request.GET["before"]) if "before" in request.GET else None
    namespaces = reached_namespaces(request)
    if namespace := chosen.chosen_values.get("namespace"):
        namespaces = frozenset({namespace}) if namespaces is None else namespaces & {namespace}
    rows, rates = queues_page_with_rates(
        namespaces, QUEUES_A_PAGE + 1, after=before, tag=chosen.chosen_values.get("tag")
    )
    now = database_time()
    shown = {
        "title": "Queues",
        "trail": [HOME],
        "filter": chosen,
        "queues": [
            present_queue(row, rates.get((row.namespace, tuple(row.tags))), now) for row in rows[:QUEUES_A_PAGE]
        ],
        "may": request.user.has_perm(PERMISSION),
        "before": before,
        "is_sorted": True,
        "older": link_to_older(chosen, write_place(rows[QUEUES_A_PAGE - 1])) if len(rows) > QUEUES_A_PAGE else None,
    }
    return render_page(request, "queues", shown)


def present_queue(row: Queue, rate: QueueRate | None, now: datetime) -> dict[str, Any]:
    """Return a queue with links to its jobs in each state, and to the servers that have its tags."""
    jobs = {"namespace": row.namespace, "queue": ",".join(row.tags)}
    return {
        "it": row,
        "tags": format_tags(tuple(row.tags)),
        "label": describe_queue(row),
        "namespace": "" if row.namespace == DEFAULT_NAMESPACE else row.namespace,
        "oldest": row.oldest_at and time_since(row.oldest_at, now),
        "waiting": link_to_page("jobs", **jobs, state=JobState.PENDING.value),
        "all": link_to_page("jobs", **jobs),
        "hold": row.hold and present_hold_in_json(json.loads(row.hold), now),
        "why_parked": describe_parked(row),
        "pause": link_to_page("hold_add", **hold_of_queue(row)),
        "limit": link_to_page("limit_set", pattern=f"tag:{particular_tag(row)}"),
        "rate": rate and present_rate(rate),
        "lacks_workers": not row.workers and row.waiting,
    }


def describe_queue(row: Queue) -> str:
    """Return the name of a queue as text, like "gpu, script"."""
    tags = ", ".join(filter(None, row.tags)) or "without tags"
    return tags if row.namespace == DEFAULT_NAMESPACE else f"{tags} of namespace {row.namespace}"


def describe_parked(row: Queue) -> str:
    """Return what the parked jobs of a queue wait for. A queue that is on hold as a whole has a mark of its own."""
    limited, on_hold = row.parked - row.on_hold - row.in_loops, 0 if row.hold else row.on_hold
    counts = {"limited": limited, "on hold": on_hold, "in loops": row.in_loops}
    reasons = [(count, reason) for reason, count in counts.items() if count]
    return ", ".join(f"{count:,} {reason}" if len(reasons) > 1 else reason for count, reason in reasons)


def present_rate(rate: QueueRate) -> dict[str, Any]:
    """Return the jobs submitted and ended per minute, and a chart of the ended ones."""
    chart = json.loads(rate.chart or "{}")
    ended = [chart.get(str(place), 0) for place in reversed(range(rate.chart_minutes))]
    return {
        "submitted": format_rate(rate.submitted, rate.submitted_in),
        "ended": format_rate(rate.ended, rate.ended_in),
        "sparkline": draw_sparkline(ended) if any(ended) else None,
        "drawing": f"Jobs ended per minute in the last {len(ended)} minutes: at most {max(ended, default=0):,}",
    }


def format_rate(jobs: int, seconds: float) -> str:
    """Return a number of jobs per minute, with one decimal if it is small."""
    per_minute = jobs * 60 / max(seconds, 1)
    return f"{per_minute:,.0f}" if per_minute >= 10 or not jobs else f"{per_minute:.1f}"


def hold_of_queue(row: Queue) -> dict[str, str]:
    """Return what the form of a hold is filled with: the Celery queue, or the most particular tag."""
    queue = next((tag.removeprefix("queue:") for tag in row.tags if tag.startswith("queue:")), "")
    return {"kind": "queue", "value": queue} if queue else {"kind": "tag", "value": particular_tag(row)}


def particular_tag(row: Queue) -> str:
    """Return the tag of a queue that the fewest others have, as far as their names show."""
    return next((tag for tag in row.tags if tag not in TAGS_OF_ACTIONS), row.tags[0] if row.tags else "")
