"""Selector of a job for its page."""

from typing import Any
from uuid import UUID

from django.db.models import F, FloatField, Func, JSONField, Prefetch

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

# The items of a loop read the execution of its step.
SOURCES = """(
    select jsonb_object_agg(source.step, source.id)
      from jobs_execution e
      left join jobs_workerjob p on p.id = e.parent_step_id and p.loop is not null
      join jobs_workerjob source
        on source.execution_id = coalesce(p.execution_id, e.id)
       and source.step = any(coalesce(jobs_workerjob.reads, p.reads))
     where e.id = %(expressions)s)"""


RECENT = 1000
"""Number of ended jobs among which jobs of the same function are looked for."""
ALIKE, LEAST_ALIKE = 30, 5
"""Most and least number of such jobs for a median."""

USUAL_SECONDS = """(
    select percentile_cont(0.5) within group (order by alike.seconds)
      from jobs_workerjob j
     cross join lateral (
           select extract(epoch from a.finished_at - a.started_at)::float8 as seconds
             from (select p.* from jobs_workerjob p
                    where p.finished_at is not null order by p.finished_at desc limit %(recent)s) recent
             join jobs_attempt a on a.job_id = recent.id and a.state = 'COMPLETED'
            where recent.namespace = j.namespace and recent.state = 'COMPLETED'
              and recent.action ->> 'type' = j.action ->> 'type' and recent.name = j.name
              and coalesce(recent.action ->> 'path', recent.action ->> 'name', recent.action ->> 'task',
                           recent.action ->> 'image', recent.action ->> 'command')
                = coalesce(j.action ->> 'path', j.action ->> 'name', j.action ->> 'task', j.action ->> 'image',
                           j.action ->> 'command')
            limit %(alike)s) alike
     where j.id = %(expressions)s and j.state = 'RUNNING' and j.attempt_id is not null
    having count(*) >= %(least_alike)s)"""


def job_details(job: UUID, lines: int) -> DetailedJob | None:
    """Return a job with its attempts for its page, or None if it does not exist.

    It has the last `lines` lines of its `log`, its `superseded_reports`, its `action_events`, and `now`. A running one
    has `usual_seconds`: the median duration of recent jobs of the same function, or None if there are too few.
    `sources` are the jobs of the steps that its paths read, by key.
    """
    attempts = Prefetch("attempts", Attempt.objects.select_related("server").order_by("number"))
    details = jobs_with_action_guards(WorkerJob.objects.prefetch_related(attempts)).annotate(
        now=ClockTimestamp(),
        superseded_reports=Func(F("pk"), template=SUPERSEDED_REPORTS, output_field=JSONField()),
        usual_seconds=Func(
            F("pk"),
            template=USUAL_SECONDS,
            recent=RECENT,
            alike=ALIKE,
            least_alike=LEAST_ALIKE,
            output_field=FloatField(null=True),
        ),
        sources=Func(F("execution_id"), template=SOURCES, output_field=JSONField()),
        child_execution=CHILD_EXECUTION,
        resubmitted_as=LAST_RESUBMISSION,
        action_events=action_events(Subject.JOB),
    )
    detailed: Any = jobs_with_log(details, lines).filter(pk=job).first()
    return detailed
