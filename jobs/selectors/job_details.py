"""Selector of a job for its page."""

from typing import Any
from uuid import UUID

from django.db.models import F, Func, JSONField, Prefetch

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Attempt, WorkerJob
from jobs.selectors.jobs import CHILD_EXECUTION, LAST_RESUBMISSION, DetailedJob, jobs_with_action_guards
from jobs.selectors.logs import jobs_with_log
from liveness.selectors.events import action_events
from liveness.states import Subject

SUPERSEDED_REPORTS = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'number', a.number, 'server', s.name, 'event', l.event, 'reason', l.reason, 'more', l.more,
               'code', l.body -> 'error' ->> 'code', 'message', left(l.body -> 'error' ->> 'message', 2000),
               'traceback', right(l.body -> 'error' ->> 'traceback', 4000), 'why', left(l.body ->> 'reason', 2000),
               'output', left(jsonb_pretty(nullif(l.body -> 'output', 'null')), 4000),
               'at', to_char(l.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) order by l.id), '[]')
      from jobs_latereport l join jobs_attempt a on a.id = l.attempt_id join liveness_server s on s.id = a.server_id
     where l.job_id = %(expressions)s)"""


def job_details(job: UUID, lines: int) -> DetailedJob | None:
    """Return a job with its attempts for its page, or None if it does not exist.

    It has the last `lines` lines of its `log`, its `superseded_reports`, its `action_events`, and `now`.
    """
    attempts = Prefetch("attempts", Attempt.objects.select_related("server").order_by("number"))
    details = jobs_with_action_guards(WorkerJob.objects.prefetch_related(attempts)).annotate(
        now=ClockTimestamp(),
        superseded_reports=Func(F("pk"), template=SUPERSEDED_REPORTS, output_field=JSONField()),
        child_execution=CHILD_EXECUTION,
        resubmitted_as=LAST_RESUBMISSION,
        action_events=action_events(Subject.JOB),
    )
    detailed: Any = jobs_with_log(details, lines).filter(pk=job).first()
    return detailed
