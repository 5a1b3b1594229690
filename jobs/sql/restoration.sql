-- statement: resubmit_live_attempts
-- End every live attempt after the database was restored from a backup, because nobody knows what the attempts have
-- done since. Called under `lock_roots`. This does not count as a loss, with two exceptions: jobs that must not run
-- twice (`on_worker_lost` is FAIL), and Celery tasks, because the broker delivers these again.
-- takes: actor text, max_resubmissions int, reason text
-- returns: state text, job_state text, server text, reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[], attempts uuid[], is_limited bool
-- row: EndedAttempts
with held as materialized (
    select j.id as job_id, a.id, a.state as was,
           case when j.on_worker_lost = 'FAIL' or j.kind = 'CELERY' then 'LOST' else 'MOVED' end as event,
           null::jsonb as output,
           jsonb_build_object('code', 'WORKER_CRASHED', 'message', %(reason)s::text, 'server', a.server_id) as error,
           %(reason)s::text as reason, %(actor)s::text as actor, a.server_id, j.cancel_requested_at, j.on_worker_lost,
           j.resubmissions, j.retries, j.available_at
      from jobs_attempt a
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
     where {{is_live(a)}}
     order by j.id
       for no key update of j
),
{{end_attempts}}
{{count_ended_attempts}}

-- statement: executions_of_live_attempts
-- List the executions with a step that a worker holds, so that the caller can lock their roots.
-- returns: id uuid
select distinct j.execution_id as id
  from jobs_attempt a join jobs_workerjob j on j.id = a.job_id
 where {{is_live(a)}} and j.execution_id is not null
