"""Activity page and quarantine page."""

from datetime import datetime
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html

from controlplane.console.actions.jobs import QUARANTINE_ACTIONS
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.formatting import time_since
from controlplane.console.page import HOME, render_page, require_reader, viewable, within_reach
from controlplane.console.presenters.jobs import present_job
from controlplane.console.selectors import recent_activity
from controlplane.console.selectors.filters.activity import ActivityFilter
from controlplane.console.selectors.filters.base import PERIOD
from controlplane.console.selectors.filters.jobs import QuarantineFilter
from controlplane.console.selectors.listing import build_list_page, format_at_least, link_to_older, present_list_page
from controlplane.core.bounds import clamp_moment
from controlplane.core.database.replica import read_past
from jobs.selectors.job_lists import jobs_page
from jobs.selectors.jobs import quarantined_jobs
from jobs.states import QUARANTINED
from liveness.selectors.clock import database_time

ENTRIES_A_PAGE, JOBS_A_PAGE = 50, 50


@require_reader(about_instance=True)
def show_activity(request: HttpRequest) -> HttpResponse:
    """Show state changes, resubmissions, refusals and operator actions, latest first. The entries are read-only."""
    chosen = ActivityFilter(request.GET)
    before = parse_moment(request.GET.get("before"))
    now = database_time()
    sees = viewable(request.user)
    within, start, until = chosen.period
    searched = {name: value for name, value in chosen.chosen_values.items() if name not in PERIOD}
    read = partial(
        recent_activity.list_activity,
        ENTRIES_A_PAGE + 1, before=min(filter(None, (before, until)), default=None), sees=sees,
        after=max(filter(None, (start, now - within if within else None)), default=None), **searched,
    )  # fmt: skip
    entries, since = read_past(request, read)
    last = entries[-2].at if len(entries) > ENTRIES_A_PAGE else since
    shown = {
        "title": "Activity",
        "trail": [HOME],
        "filter": chosen,
        "filters": "activity",
        "activity": [(row, time_since(row.at, now)) for row in entries[:ENTRIES_A_PAGE]],
        "before": before,
        "older": last and link_to_older(chosen, last.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
        "searched": since and format_html("the last {}", time_since(since, now)),
    }
    return render_page(request, "activity", shown)


@require_reader("job")
def show_quarantine(request: HttpRequest) -> HttpResponse:
    """Show jobs that failed because their workers were lost repeatedly, with the actions Resubmit and Dismiss."""
    chosen = QuarantineFilter(request.GET)
    rows = within_reach(request, quarantined_jobs())
    page = partial(jobs_page, order=chosen.order)
    listing = build_list_page(request, chosen, rows, page, JOBS_A_PAGE, "quarantined job")
    matching, floor = chosen.match_in_scan_window(rows, None)
    shown = {
        "title": "Quarantine",
        "trail": [HOME],
        "filter": chosen,
        "filters": "quarantine",
        "codes": " or ".join(QUARANTINED),
        "matching": format_at_least(matching.count(), floor),
        "jobs": [present_job(job) for job in listing.rows],
        **present_list_page(listing, chosen),
        "actions": list_permitted_actions(request, QUARANTINE_ACTIONS),
        "folder": "quarantine",
    }
    return render_page(request, "quarantine", shown)


def parse_moment(text: str | None) -> datetime | None:
    """Return the moment given in a query parameter, clamped to the valid range, or None if it is not a moment."""
    try:
        at = parse_datetime(text) if text else None
    except ValueError:
        return None
    return clamp_moment(at) if at else None
