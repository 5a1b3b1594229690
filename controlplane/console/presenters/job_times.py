"""Times of a job in words: how long it waited, ran, and was quiet."""

from datetime import UTC, datetime

from django.utils.safestring import SafeString

from controlplane.console.formatting import seconds_since
from controlplane.core.durations import describe_exactly
from jobs.selectors.jobs import DetailedJob
from jobs.states import JobKind, JobState

LONG_FACTOR = 2
"""A job runs longer than usual if it has run this many times as long as other jobs of its function."""
QUIET_SECONDS = 60
"""The page of a job says for how long it has written no output, if it is at least this long."""
MAY_HANG_AFTER = 600
"""The list of jobs says so only after this many seconds, because most jobs write little."""


def describe_times(job: DetailedJob) -> str:
    """Return how long a job waited before its first start, and its total run time.

    A time that still grows is written in the present perfect: "has run for".
    """
    spans = [
        (attempt.started_at, attempt.finished_at or job.now) for attempt in job.attempts.all() if attempt.started_at
    ]
    if not spans:
        return ""
    waited = (spans[0][0] - job.created_at).total_seconds()
    is_running = any(attempt.started_at and not attempt.finished_at for attempt in job.attempts.all())
    ran = sum((end - start).total_seconds() for start, end in spans)
    times = f"Waited {describe_exactly(waited)}, {'has run for' if is_running else 'ran'} {describe_exactly(ran)}"
    if is_running:
        return times + describe_slowness(job, *spans[-1])
    if job.state != JobState.PENDING:
        return times
    return f"{times}, has been waiting again for {describe_exactly((job.now - spans[-1][1]).total_seconds())}"


def describe_slowness(job: DetailedJob, start: datetime, end: datetime) -> str:
    """Return how much longer than usual a job runs, and since when it has written no output, as ends of a sentence.

    The current attempt has run from `start` until `end`.
    """
    words = ""
    usual = job.usual_seconds
    ran = (end - start).total_seconds()
    if usual is not None and ran >= max(1.0, LONG_FACTOR * usual):
        times = f"{ran / usual:,.0f} × as long as usual" if usual >= 1 else "longer than usual"
        words = f", {times} ({describe_exactly(usual)})"
    last = datetime.fromisoformat(job.log[-1]["at"]).replace(tzinfo=UTC) if job.log else start
    quiet = (job.now - max(last, start)).total_seconds()
    # A job that has written nothing yet may be one that never writes.
    if quiet >= (QUIET_SECONDS if last > start else MAY_HANG_AFTER) and job.kind != JobKind.CELERY:
        words += f"; no output for {describe_exactly(quiet)}"
    return words


def describe_silence(job: DetailedJob) -> SafeString | None:
    """Return for how long a running job has written no output, if it may hang. Celery tasks send no output."""
    quiet = (job.last_attempt or {}).get("quiet") if job.state == JobState.RUNNING else None
    if quiet is None or quiet < MAY_HANG_AFTER or job.kind == JobKind.CELERY:
        return None
    return seconds_since(quiet, job.now)
