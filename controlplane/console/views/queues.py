"""Page of queues: the jobs that wait and run, by namespace and required tags."""

from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.actions.holds import PERMISSION
from controlplane.console.formatting import format_tags, time_since
from controlplane.console.page import HOME, reached_namespaces, render_page, require_reader
from controlplane.console.selectors.filters.queues import QueueListFilter
from controlplane.console.selectors.listing import link_to_older
from jobs.selectors.queues import queues_page, read_place, write_place
from jobs.sql.rows.queues import Queue
from jobs.states import JobState
from liveness.models import DEFAULT_NAMESPACE
from liveness.selectors.clock import database_time

QUEUES_A_PAGE = 100
TAGS_OF_ACTIONS = {"script", "python", "docker", "kubernetes", "celery"}
"""Tags that many jobs have because of their action."""


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
    rows = queues_page(namespaces, QUEUES_A_PAGE + 1, after=before, tag=chosen.chosen_values.get("tag"))
    now = database_time()
    shown = {
        "title": "Queues",
        "trail": [HOME],
        "filter": chosen,
        "queues": [present_queue(row, now) for row in rows[:QUEUES_A_PAGE]],
        "may": request.user.has_perm(PERMISSION),
        "before": before,
        "is_sorted": True,
        "older": link_to_older(chosen, write_place(rows[QUEUES_A_PAGE - 1])) if len(rows) > QUEUES_A_PAGE else None,
    }
    return render_page(request, "queues", shown)


def present_queue(row: Queue, now: datetime) -> dict[str, Any]:
    """Return a queue with links to its jobs in each state, and to the servers that have its tags."""
    jobs = {"namespace": row.namespace, "queue": ",".join(row.tags)}
    return {
        "it": row,
        "tags": format_tags(tuple(row.tags)),
        "namespace": "" if row.namespace == DEFAULT_NAMESPACE else row.namespace,
        "oldest": row.oldest_at and time_since(row.oldest_at, now),
        "waiting": link_to_jobs(**jobs, state=JobState.PENDING.value),
        "all": link_to_jobs(**jobs),
        "hold": link_to_hold(row),
        "lacks_workers": not row.workers and row.waiting,
    }


def link_to_hold(row: Queue) -> str:
    """Return a link to the form that holds the queue by its Celery queue, or by its most particular tag."""
    queue = next((tag.removeprefix("queue:") for tag in row.tags if tag.startswith("queue:")), "")
    own = next((tag for tag in row.tags if tag not in TAGS_OF_ACTIONS), row.tags[0])
    of = {"kind": "queue", "value": queue} if queue else {"kind": "tag", "value": own}
    return f"{reverse('instance:hold_add')}?{urlencode(of)}"


def link_to_jobs(**query: str) -> str:
    return f"{reverse('instance:jobs')}?{urlencode(query)}"
