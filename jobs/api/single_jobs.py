"""Shortcut for single jobs. Most programs submit one job in each call, and nearly all of these jobs are plainly valid.

Such calls bypass Django and its views, and simultaneous calls share a statement (core/batching.py). The serializer
decides what is valid. Calls of other kinds, and calls that would store no new job, take the normal path through Django.
"""

from collections.abc import Sequence

import orjson
from rest_framework.exceptions import APIException

from controlplane.agent.clean_text import is_clean
from controlplane.core.database.errors import CONTENDED
from controlplane.core.json_bodies import read_foreign_json
from controlplane.core.lean_bodies import REFUSALS, reader_of
from jobs.api.jobs import JobsView, describe_submitted, read_traceparent
from jobs.api.serializers.executions import SubmissionRequest
from jobs.api.shortcut import is_plain_request, render_json, run_together
from jobs.selectors.submitted import stays_untouched
from jobs.services import submission
from jobs.services.submission import SingleJob
from liveness.services import tokens

PATH = "/api/v1/jobs"
PATIENCE = 5.0
"""Seconds after which a statement counts as hanging."""
GATHERING = 0.002
"""Longest time in seconds that a job waits for other jobs to share its statement."""
ACCEPTED = ("*/*", "application/json")
FIELDS = {
    "name", "action", "payload", "tags", "priority", "timeout_seconds", "available_at", "good_until", "on_worker_lost",
    "unmatched", "max_retries", "retry_delay_seconds", "retry_backoff", "retry_on", "key", "traceparent",
}  # fmt: skip
"""Fields that only describe the job. A job with other fields takes the normal path."""


def answers(singles: list[SingleJob]) -> list[bytes | None]:
    """Store jobs in one statement and return their responses. None means that Django must handle the request.

    If one job waits for another transaction, Django handles each job by itself, so that the others need not wait. Raise
    the errors of shortcut.UNHEARD if the database is not available.
    """
    stored = run_together(submission.submit_single_jobs, singles, CONTENDED)
    return [one and render_json(describe_submitted(one.job)) for one in stored]


def parse_single_job(bearer: str, headers: Sequence[tuple[str, str]], body: bytes) -> SingleJob | None:
    """Return the job of a request, or None if Django must handle the request."""
    token = tokens.recall_token(bearer)
    if token is None or token.role not in JobsView.roles["POST"] or not is_plain_request(headers, body):
        return None
    by_name = dict(headers)
    if by_name.get("accept", "*/*") not in ACCEPTED:
        return None
    try:
        fields = read_foreign_json(body)
        job = None if isinstance(fields, list) else reader_of(SubmissionRequest)(fields)
    except (orjson.JSONDecodeError, APIException, *REFUSALS):
        return None
    if job is None or not job.keys() <= FIELDS or not stays_untouched(job):
        return None
    key = by_name.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and is_clean(key) and job.setdefault("key", key) == key):
        return None
    return SingleJob(token, job, read_traceparent(by_name.get("traceparent", "")))
