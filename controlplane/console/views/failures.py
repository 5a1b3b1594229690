"""Page of the errors of failed jobs, grouped by code and message."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.formatting import time_since
from controlplane.console.page import HOME, render_page, require_reader, within_reach
from controlplane.console.selectors.failures import errors_of_jobs
from controlplane.console.selectors.filters.jobs import ErrorFilter
from jobs import scan_window
from jobs.selectors.jobs import jobs_without_content
from jobs.states import JobState
from liveness.selectors.clock import database_time

ERRORS_SHOWN = 100


@require_reader("job")
def show_errors(request: HttpRequest) -> HttpResponse:
    """Show the errors of the jobs that failed last and match the filter, most frequent first."""
    sought = request.GET.copy()
    sought["state"] = JobState.FAILED.value
    chosen = ErrorFilter(sought)
    matching, floor = chosen.match_in_scan_window(within_reach(request, jobs_without_content()), None)
    matching = matching.filter(state=JobState.FAILED)
    now = database_time()
    shown = {
        "title": "Errors",
        "trail": [HOME, ("Jobs", "instance:jobs")],
        "filter": chosen,
        "errors": [present_error(row, chosen, now) for row in errors_of_jobs(matching, ERRORS_SHOWN)],
        "may_resubmit": request.user.has_perm("jobs.resubmit_workerjob"),
        "looked": None if floor is None else f"{scan_window.SCAN_LIMIT:,}",
    }
    return render_page(request, "errors", shown)


def present_error(row: dict[str, Any], chosen: ErrorFilter, now: Any) -> dict[str, Any]:
    """Return an error with links to its jobs, and to the form that resubmits the jobs that were not resubmitted yet."""
    others = {name: value for name, value in chosen.texts.items() if name not in ("state", "open")}
    query = {**others, "state": JobState.FAILED.value, "code": row["code"] or "", "error": row["pattern"]}
    again = {**query, "open": "1", "all": "1"}
    return {
        **row,
        "ago": row["last"] and time_since(row["last"], now),
        "jobs": f"{reverse('instance:jobs')}?{urlencode(query)}",
        "again": f"{reverse('instance:jobs_resubmit')}?{urlencode(again)}",
    }
