"""Page of the list of jobs."""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.actions.job_forms import ADD
from controlplane.console.actions.jobs import JOB_ACTIONS
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.formatting import (
    format_number,
)
from controlplane.console.page import HOME, reached_namespaces, render_page, require_reader, within_reach
from controlplane.console.presenters.jobs import present_job
from controlplane.console.selectors.filters.jobs import JobListFilter
from controlplane.console.selectors.listing import build_list_page, format_at_least, present_list_page
from controlplane.console.views.overview import format_estimate, present_job_counts
from controlplane.core.database.replica import read_past
from jobs.selectors.instance import job_counts, tab_counts_with_prospects
from jobs.selectors.job_lists import job_counts_by_state, jobs_page
from jobs.selectors.jobs import jobs_without_content
from jobs.states import TERMINAL

JOBS_A_PAGE = 50


@require_reader("job")
def show_jobs(request: HttpRequest) -> HttpResponse:
    """Show jobs, latest first. `?before=` an id shows the next page."""
    chosen = JobListFilter(request.GET)
    rows = within_reach(request, jobs_without_content())
    page = partial(jobs_page, order=chosen.order)
    read = partial(build_list_page, request, chosen, rows, page, JOBS_A_PAGE)
    listing = read_past(request, read) if chosen.chosen_values.get("state") in TERMINAL else read()
    wider = chosen.without_state()
    figures: dict[str, Any]
    format_count: Callable[[int], str]
    if is_narrowed := bool(wider.chosen_values) or reached_namespaces(request) is not None:
        matching, floor = wider.match_in_scan_window(rows, None)
        figures = {"counts": job_counts_by_state(matching), "about": []}
        format_count = partial(format_at_least, floor=floor)
    else:
        figures = job_counts()
        format_count = format_estimate if figures["about"] else format_number
    counts = figures["counts"]
    total = sum(counts.values())
    tabs: list[Any] = []
    prospects: dict[UUID, Any] = {}
    # A search on a server or among flagged jobs uses up the page's limit of queries.
    if len({"q", "server", "flag"} & chosen.chosen_values.keys()) <= 1:
        tabs, prospects = tab_counts_with_prospects(reached_namespaces(request), listing.rows)
    shown = {
        "title": "Jobs",
        "trail": [HOME],
        "filter": chosen,
        "filters": "jobs",
        "by_state": present_job_counts(figures, chosen, format_count if is_narrowed else format_number),
        "total": format_count(total),
        "matching": format_count(
            counts.get(chosen.chosen_values["state"], 0) if "state" in chosen.chosen_values else total
        ),
        "any": total or chosen.chosen_values,
        "all_states": f"{reverse('instance:jobs')}?{wider.query}",
        **present_list_page(listing, chosen),
        "jobs": [present_job(job, prospects.get(job.pk)) for job in listing.rows],
        "actions": list_permitted_actions(request, JOB_ACTIONS),
        "may_add": request.user.has_perm(ADD),
        "folder": "jobs",
        "tab_counts": tabs,
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return render_page(request, "jobs", shown)
