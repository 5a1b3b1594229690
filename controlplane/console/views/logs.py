"""Logs of a job: a page that follows new lines and searches them, and the whole log as text."""

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from controlplane.agent.clean_text import TAB, escaped
from controlplane.console.formatting import shorten
from controlplane.console.page import HOME, poll_interval, render_page, require_reader, show_not_found
from controlplane.console.polls import is_poll
from controlplane.console.presenters.jobs import name_job, short_id
from controlplane.console.presenters.log_text import is_error, show_log_text
from controlplane.console.selectors.filters.jobs import LogPageFilter
from controlplane.console.selectors.log_lines import LOOKED_AT, find_lines_after, find_lines_before
from controlplane.core.database.replica import may_read, read_past
from jobs import states
from jobs.models import Attempt
from jobs.selectors.jobs import jobs_without_content
from jobs.selectors.logs import job_log_page
from jobs.sql.rows.selectors import FoundLine, WrittenLine

LINES_READ, LINE_LENGTH, ATTEMPTS_SHOWN = 1000, 4000, 30
STREAMS = {"STDOUT": "out", "STDERR": "err"}


@require_reader("job")
def show_job_log(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show the last log lines.

    `?before=` a line number shows earlier lines. A poll with `?after=` a line number gets only newer lines.
    """
    row = jobs_without_content().filter(pk=job).first()
    if row is None:
        return show_not_found(request, "job")
    chosen = LogPageFilter(request.GET)
    attempts = list(Attempt.objects.filter(job=job).select_related("server").order_by("number"))
    # Read the state before the lines, so that the lines of an ended attempt are complete.
    state, has_ended = find_end(row, attempts, chosen.chosen_values.get("attempt"))
    sought = (*(chosen.chosen_values.get(name) for name in ("attempt", "stream", "q")),)
    after, before = parse_line(request.GET.get("after")), parse_line(request.GET.get("before"))
    is_more = is_poll(request) and after is not None
    found = find_lines_after(job, after or 0, *sought) if is_more else find_lines_before(job, before, *sought)
    query = f"{chosen.query}&" if chosen.query else ""
    poll = poll_interval(request)
    shown: dict[str, Any] = {
        "state": state,
        "lines": [present_line(line, chosen.chosen_values.get("q"), timezone.now()) for line in found.lines],
        "has_ended": has_ended and not found.is_full,
        "next": f"{request.path}?{query}after={found.last}",
        # A page that is behind loads the next lines at once instead of waiting.
        "trigger": "" if poll == "0" else f"{'load delay:100ms, ' if is_more and found.is_full else ''}every {poll}s",
    }
    if is_more:
        return render(request, "admin/instance/_log_more.html", shown)
    shown |= {
        "title": f"Logs of {name_job(row)}",
        "trail": [HOME, ("Jobs", "instance:jobs"), (short_id(job), "instance:job", job)],
        "job": row,
        "short_id": short_id(job),
        "filter": chosen,
        "attempts": list(present_attempts(attempts, chosen)),
        "before": before,
        "is_full": found.is_full,
        "first_error": next((line["it"].id for line in shown["lines"] if line["is_error"]), None),
        "looked_at": LOOKED_AT,
        "earlier": found.earlier and f"?{query}before={found.earlier}",
        "text": f"{reverse('instance:job_logs', args=[job])}?{query}",
    }
    return render_page(request, "log", shown, lives=False)


def find_end(job: Any, attempts: list[Attempt], number: int | None) -> tuple[str, bool]:
    """Return the state of the job or of one of its attempts, and True if no line can follow."""
    for attempt in attempts:
        if attempt.number == number:
            return attempt.state, attempt.finished_at is not None
    return job.state, job.state in states.TERMINAL


def present_attempts(attempts: list[Attempt], chosen: LogPageFilter) -> Iterator[dict[str, Any]]:
    """Yield a link to the lines of all attempts, then one for each of the last attempts."""
    data: Any = chosen.data
    rest = data.copy()
    for name in ("attempt", "before", "after"):
        rest.pop(name, None)
    number = chosen.chosen_values.get("attempt")
    yield {"it": None, "url": f"?{rest.urlencode()}", "is_chosen": number is None}
    for attempt in attempts[-ATTEMPTS_SHOWN:]:
        rest["attempt"] = str(attempt.number)
        yield {"it": attempt, "url": f"?{rest.urlencode()}", "is_chosen": number == attempt.number}


def present_line(line: FoundLine, sought: str | None, now: datetime) -> dict[str, Any]:
    at: Any = line.at
    text = shorten(line.line or "", LINE_LENGTH)
    return {
        "it": line,
        "stream": STREAMS[line.stream or "STDOUT"],
        "at": describe_moment(at),
        "moment": at.isoformat(),
        "time": format_time_of_line(at, now),
        "text": show_log_text(text, sought),
        "is_error": is_error(text),
    }


def format_time_of_line(at: datetime, now: datetime) -> str:
    """Return the time to the millisecond, with the day if it is not today. reader.js converts it to local time."""
    return f"{'' if at.date() == now.date() else f'{at:%b %d} '}{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def describe_moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"


def parse_line(text: str | None) -> int | None:
    """Return the line number given in a query parameter, or None if it is not a number."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


@require_reader("job")
def stream_job_logs(request: HttpRequest, job: UUID) -> Any:
    """Stream the log lines of a job that match the filter as text. `?download=1` sends them as a file."""
    if not jobs_without_content().filter(pk=job).exists():
        return show_not_found(request, "job")
    chosen = LogPageFilter(request.GET).chosen_values
    answer = StreamingHttpResponse(format_log_lines(request, job, chosen), content_type="text/plain; charset=utf-8")
    if request.GET.get("download"):
        of = f"-attempt-{chosen['attempt']}" if "attempt" in chosen else ""
        answer["Content-Disposition"] = f'attachment; filename="job-{short_id(job)}{of}.log"'
    return answer


def read_log_page(request: HttpRequest, job: UUID, after: int, attempt: int | None) -> list[WrittenLine]:
    """Return the next log lines: from the read replica if the job has ended there."""
    read = partial(job_log_page, job, after, LINES_READ, attempt)
    if not may_read(request):
        return read()
    ended = jobs_without_content().filter(pk=job, finished_at__isnull=False)
    return read_past(request, lambda: (ended.exists(), read()), is_past=itemgetter(0))[1]


def format_log_lines(request: HttpRequest, job: UUID, chosen: dict[str, Any]) -> Iterator[str]:
    """Yield each matching log line of a job: time, attempt, stream, text.

    Control characters are escaped, because the text may be read on a terminal, and one line must not look like several.
    """
    after, sought = 0, str(chosen.get("q", "")).lower()
    while rows := read_log_page(request, job, after, chosen.get("attempt")):
        for row in rows:
            if chosen.get("stream", row.stream) == row.stream and sought in row.line.lower():
                line = escaped(row.line, keep=TAB)
                yield f"{row.at:%Y-%m-%dT%H:%M:%S.%fZ} #{row.attempt} {STREAMS[row.stream]} {line}\n"
        after = rows[-1].id
