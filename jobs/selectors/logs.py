"""Reads the log lines of jobs."""

from uuid import UUID

from django.db.models import Case, Exists, F, Func, JSONField, OuterRef, Q, QuerySet, Value, When

from jobs.models import Attempt, WorkerJob
from jobs.sql import sql
from jobs.sql.rows.selectors import ServerLine, WrittenLine
from jobs.states import TERMINAL


def job_log_page(job: UUID, after: int, limit: int, attempt: int | None = None) -> list[WrittenLine]:
    """Return log lines of a job with an id above `after`, oldest first, of one `attempt` or (None) of all."""
    return sql.read_log_page.fetch_rows(job=job, after=after, limit=limit, attempt=attempt)


def has_log_ended(jobs: QuerySet[WorkerJob], job: UUID, attempt: int | None = None) -> bool | None:
    """Return True if no line of a job, or of one of its attempts, can follow. None: the job is not among `jobs`."""
    of_job = Attempt.objects.filter(job=OuterRef("pk"), number=attempt or 0, finished_at__isnull=False)
    ended = Q(state__in=TERMINAL) if attempt is None else Q(state__in=TERMINAL) | Q(Exists(of_job))
    found = jobs.filter(pk=job).values_list(Case(When(ended, then=Value(True)), default=Value(False))).first()
    return found and bool(found[0])


def job_server_lines(job: UUID, after: int, limit: int) -> list[ServerLine]:
    """Return lines about what the control plane did with a job, with a place above `after`, oldest first."""
    return sql.list_server_lines_of_job.fetch_rows(job=job, after=after, limit=limit)


LOG_TAIL = """(
    select jsonb_agg(
               jsonb_build_object(
                   'id', last.id, 'attempt', last.number, 'stream', last.stream, 'line', last.line,
                   'at', to_char(last.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'))
               order by last.id)
      from (select l.*
              from (select id, number from jobs_attempt where job_id = %(expressions)s) a
             cross join lateral (
                   select l.id, a.number, l.stream, l.line, l.at from jobs_logline l
                    where l.attempt_id = a.id order by l.id desc limit %(limit)s
                   ) l
             order by l.id desc limit %(limit)s) last)"""


def jobs_with_log(jobs: QuerySet[WorkerJob], limit: int) -> QuerySet[WorkerJob]:
    """Return jobs with the last lines of their `log`, oldest first (None: there are none)."""
    return jobs.annotate(log=Func(F("pk"), template=LOG_TAIL, limit=limit, output_field=JSONField()))
