"""What happened, and what is kept for review."""

from datetime import UTC
from typing import Any

from django.http import HttpResponse
from django.utils.dateparse import parse_datetime

from jobs import selectors
from jobs.pages.actions import QUARANTINE_ACTIONS
from jobs.pages.filters import ActivityFilter, QuarantineFilter, as_uuid
from jobs.pages.jobs import before_link
from jobs.pages.told import job_told
from jobs.pages.unknown import HOME
from liveness.pages.actions import offered
from liveness.pages.reading import HtmxRequest, for_readers, page
from liveness.pages.words import ago
from liveness.selectors import database_time

HAPPENINGS_A_PAGE, JOBS_A_PAGE = 50, 50


@for_readers
def activity(request: HtmxRequest) -> HttpResponse:
    """Transitions, resubmissions, refusals and operator actions, latest first; nobody changes or deletes them."""
    chosen = ActivityFilter(request.GET)
    before = moment_said(request.GET.get("before"))
    now: Any = database_time()
    found = selectors.activity(HAPPENINGS_A_PAGE + 1, before=before, **chosen.chosen)
    shown = {
        "title": "Activity",
        "trail": [HOME],
        "filter": chosen,
        "filters": "activity",
        "activity": [(row, ago(row.at, now)) for row in found[:HAPPENINGS_A_PAGE]],
        "before": before,
        "older": before_link(chosen, found[-2].at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        if len(found) > HAPPENINGS_A_PAGE
        else None,
    }
    return page(request, "happenings", shown)


@for_readers
def quarantine(request: HtmxRequest) -> HttpResponse:
    """Jobs that ended with their workers, again and again: for a look, and then resubmitted or dismissed."""
    chosen = QuarantineFilter(request.GET)
    before = as_uuid(request.GET.get("before"))
    matching = chosen.apply(selectors.quarantined_jobs())
    rows: list[Any] = list(selectors.jobs_page(matching, before, JOBS_A_PAGE + 1))
    shown = {
        "title": "Quarantine",
        "trail": [HOME],
        "filter": chosen,
        "filters": "quarantine",
        "matching": matching.count(),
        "jobs": [job_told(job) for job in rows[:JOBS_A_PAGE]],
        "before": before,
        "older": before_link(chosen, rows[JOBS_A_PAGE - 1].pk) if len(rows) > JOBS_A_PAGE else None,
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
