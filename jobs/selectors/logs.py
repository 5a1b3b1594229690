"""The lines that the code of jobs wrote."""

from uuid import UUID

from django.db.models import F, Func, JSONField, QuerySet

from jobs.models import WorkerJob
from jobs.sql import sql
from jobs.sql.rows.selectors import WrittenLine


def job_log_page(job: UUID, after: int, limit: int, attempt: int | None = None) -> list[WrittenLine]:
    """Lines that a job's code wrote, oldest first, those whose id is greater than `after`; maybe of one attempt."""
    return sql.read_log_page.fetch_rows(job=job, after=after, limit=limit, attempt=attempt)


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
    """Jobs with the last lines that their code wrote, oldest first, `log`; None where there are none."""
    return jobs.annotate(log=Func(F("pk"), template=LOG_TAIL, limit=limit, output_field=JSONField()))
