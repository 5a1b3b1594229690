"""Job templates of Django tasks.

A template is validated once for each task, because its jobs differ only in their payload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from controlplane.agent.tracing import span_of_submission
from controlplane.core.rest import validate_body
from jobs.api.serializers.executions import SubmissionRequest
from jobs.in_process import refuse_oversized, submit_many
from jobs.services import drafts, enqueueing


@dataclass(frozen=True)
class JobTemplate:
    """A job without its payload. `content` is its part of the stored row."""

    fields: dict[str, Any]
    content: dict[str, Any]

    @classmethod
    def build(cls, fields: Mapping[str, Any]) -> "JobTemplate":
        """Return the template of a job with these fields. Raise ValidationError if no such job may be submitted."""
        validated = validate_body(SubmissionRequest, dict(fields))
        return cls(dict(fields), drafts.build_job_content(validated))


def enqueue_jobs(jobs: Sequence[tuple[JobTemplate, dict[str, Any]]]) -> list[UUID]:
    """Store a job for each template and payload in the caller's transaction, and return their ids in order.

    A payload is JSON. Raise ValidationError if a job is too large.
    """
    wanted = [{**template.fields, "payload": payload} for template, payload in jobs]
    if not all(enqueueing.needs_no_check(job) and "available_at" not in job for job in wanted):
        return submit_many(wanted)
    for job in wanted:
        refuse_oversized(job)
    with span_of_submission() as trace:
        rows = []
        for (template, payload), job in zip(jobs, wanted, strict=True):
            own = {"payload": payload, "traceparent": trace, "fingerprint": drafts.compute_fingerprint(job)}
            rows.append({**template.content, **own})
        return enqueueing.enqueue_jobs(rows)
