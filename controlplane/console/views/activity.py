"""What happened, and what is kept for review."""

from datetime import UTC
from typing import Any

from django.http import HttpResponse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html

from controlplane.console.actions.jobs import QUARANTINE_ACTIONS
from controlplane.console.actions.servers import offered
from controlplane.console.presenters.jobs import job_told
from controlplane.console.presenters.words import ago
from controlplane.console.selectors import recent_activity
from controlplane.console.selectors.filters import ActivityFilter, QuarantineFilter, as_uuid
from controlplane.console.selectors.listing import at_least, before_link, listed
from controlplane.console.views.not_found import HOME
from controlplane.console.views.page import HtmxRequest, for_readers, page, viewable
from jobs import selectors
from liveness.selectors import database_time

HAPPENINGS_A_PAGE, JOBS_A_PAGE = 50, 50


@for_readers()
def activity(request: HtmxRequest) -> HttpResponse:
    """Transitions, resubmissions, refusals and operator actions, latest first; nobody changes or deletes them."""
    chosen = ActivityFilter(request.GET)
    before = moment_said(request.GET.get("before"))
    now: Any = database_time()
    sees = viewable(request.user)
    found, since = recent_activity.activity(HAPPENINGS_A_PAGE + 1, before=before, sees=sees, **chosen.chosen)
    last = found[-2].at if len(found) > HAPPENINGS_A_PAGE else since
    shown = {
        "title": "Activity",
        "trail": [HOME],
        "filter": chosen,
        "filters": "activity",
        "activity": [(row, ago(row.at, now)) for row in found[:HAPPENINGS_A_PAGE]],
        "before": before,
        "older": last and before_link(chosen, last.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
        "searched": since and format_html("what happened since {} ago", ago(since, now)),
    }
    return page(request, "happenings", shown)


@for_readers("job")
def quarantine(request: HtmxRequest) -> HttpResponse:
    """Jobs that ended with their workers, again and again: for a look, and then resubmitted or dismissed."""
    chosen = QuarantineFilter(request.GET)
    before = as_uuid(request.GET.get("before"))
    found = listed(chosen, selectors.quarantined_jobs(), selectors.jobs_page, before, JOBS_A_PAGE, "quarantined job")
    matching, floor = chosen.within_reach(selectors.quarantined_jobs(), None)
    shown = {
        "title": "Quarantine",
        "trail": [HOME],
        "filter": chosen,
        "filters": "quarantine",
        "matching": at_least(matching.count(), floor),
        "jobs": [job_told(job) for job in found.rows],
        "before": before,
        "older": found.older,
        "searched": found.searched,
        "actions": offered(request, QUARANTINE_ACTIONS),
        "folder": "quarantine",
    }
    return page(request, "quarantine", shown)


def moment_said(said: str | None) -> Any:
    try:
        at = parse_datetime(said) if said else None
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at
