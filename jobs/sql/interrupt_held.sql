-- The live attempt of one job, which an operator, or the client whose job it is, ends. Locked by interrupt_lock.sql.
held as materialized (
    select j.id as job_id, a.id, j.state as was, %(event)s::text as event, null::jsonb as output,
           %(error)s::jsonb as error, %(reason)s::text as reason, %(actor)s::text as actor, a.server_id,
           j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries, j.available_at
      from jobs_workerjob j join jobs_attempt a on a.id = j.attempt_id
     where j.id = %(job)s and {{interrupt_reach}} and {{consequences}} and j.state in {{LIVE}}
       and (j.cancel_requested_at is null or %(event)s = 'ENDED')
       and not {{moved_before}}
)
