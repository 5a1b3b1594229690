-- step: silent_attempts
from jobs_attempt a
  join jobs_workerjob j on j.id = a.job_id
  join liveness_server s on s.id = a.server_id
 cross join liveness_clock clock
 where {{is_live(a)}}
   and clock.reading - a.alive_observed
       > case a.state when 'CLAIMED' then %(claimed_stale_after)s::float8 else %(running_stale_after)s::float8 end

-- statement: end_overdue_attempts
-- End live attempts that are past a timeout or stale, though their server is not lost. Called by the sweep, and for an
-- operator (`by_hand`), which may also end attempts of a server with the strategy NEVER. The first cause counts; a
-- threshold that is null is not checked. Both rows are locked and checked again, so a heartbeat or a completion that
-- came between the search and the write wins.
-- takes: actor text, cancel_timeout float8, timeouts bool, claimed_stale_after float8, by_hand bool,
--   running_stale_after float8, only uuid[], batch bigint, max_resubmissions int
-- returns: state text, job_state text, server text, reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[], attempts uuid[], is_limited bool
-- row: EndedAttempts
with held as materialized (
    select j.id as job_id, a.id, j.state as was, cause.event, null::jsonb as output,
           jsonb_build_object(
               'code', cause.code, 'message', cause.message, 'server', s.id, 'host', s.hostname, 'pid', a.pid,
               'threshold', cause.threshold, 'started_at', a.started_at, 'detected_at', clock_timestamp()) as error,
           cause.message as reason, %(actor)s as actor, s.id as server_id, j.cancel_requested_at, j.on_worker_lost,
           j.resubmissions, j.retries, j.available_at
      from jobs_attempt a
      join liveness_server s on s.id = a.server_id
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
     cross join liveness_clock clock
     cross join lateral (
        select 'LOST' as event, 'CANCEL_TIMEOUT' as code, 'the worker did not confirm the cancellation' as message,
               %(cancel_timeout)s::float8 as threshold
         where j.cancel_requested_observed + %(cancel_timeout)s::float8 <= clock.reading
        union all
        -- The worker itself ends its code first. A quarter of its timeout later, because its report may be on the way.
        select 'FAILED', 'STEP_TIMEOUT', format('exceeded its timeout of %%s s', j.timeout_seconds), j.timeout_seconds
         where %(timeouts)s and a.state = 'RUNNING'
           and a.started_observed + j.timeout_seconds + s.timeout / 4 <= clock.reading
           and (not {{is_lost(s)}} or s.worker_task_restart_strategy = 'NEVER')
        union all
        select 'LOST', 'CLAIM_STALE', 'no sign of life of the claim', %(claimed_stale_after)s::float8
         where a.state = 'CLAIMED' and clock.reading - a.alive_observed > %(claimed_stale_after)s::float8
        union all
        select case when %(by_hand)s then 'ENDED' else 'LOST' end, 'WORKER_CRASHED', 'no sign of life of the code',
               %(running_stale_after)s::float8
         where a.state = 'RUNNING'
           -- A silent server is the business of the liveness check. So the sweep measures the silence of the code only
           -- up to the last heartbeat of its server. An operator measures it up to now.
           and case when %(by_hand)s then clock.reading else s.heard_observed end - a.alive_observed
               > %(running_stale_after)s::float8
           and (%(by_hand)s or not {{is_lost(s)}} and s.worker_task_restart_strategy <> 'NEVER')
         limit 1
     ) cause
     where {{is_live(a)}}
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
       -- `case` makes PostgreSQL check the cause first: otherwise it would lock the root of every live job.
       and case when cause.event is null then false else {{root_is_locked(j)}} end
     order by j.id
     limit %(batch)s
       for no key update of j, a skip locked
),
-- due: select job_id as id from held
{{end_attempts}}
{{count_ended_attempts}}

-- statement: expire_jobs
-- Set pending jobs to EXPIRED whose `good_until` has passed, one batch, and count them. A Celery task that no worker can
-- receive now gets another day, while its job is younger than `kept` seconds. Called by the sweep.
-- takes: only uuid[], kept float8, batch bigint
-- returns: state text, jobs bigint, executions uuid[]|null, evaluations uuid[]|null, listed uuid[]
-- row: SweptJobs
with jobs_to_expire as (
    select j.id
      from (select id from jobs_workerjob
             where state = 'PENDING' and good_until < clock_timestamp()
               and (%(only)s::uuid[] is null or id = any(%(only)s))
             order by id) due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and j.state = 'PENDING' and j.good_until < clock_timestamp() and {{root_is_locked(j)}}
              and not (j.created_at > clock_timestamp() - make_interval(secs => %(kept)s) and {{cannot_be_received(j)}})
              for no key update skip locked
           ) j
     limit %(batch)s
),
-- due: select id from jobs_to_expire
-- After a hold, at least twelve hours are left in which workers can receive the messages that waited.
prolonged_jobs as (
    update jobs_workerjob j
       set good_until = clock_timestamp() + interval '1 day'
     where j.id in (
           select id from jobs_workerjob
            where state = 'PENDING' and good_until < clock_timestamp() + interval '12 hours' and kind = 'CELERY'
              and created_at > clock_timestamp() - make_interval(secs => %(kept)s)
            order by id limit %(batch)s for no key update skip locked)
       and {{cannot_be_received(j)}}
),
expired_jobs as (
    update jobs_workerjob j
       set state = 'EXPIRED', finished_at = clock_timestamp(),
           error = jsonb_build_object('code', 'EXPIRED', 'message', format(
               case j.kind when 'CELERY' then
                   'No worker received its message until %%s. Look for it in its queue, and for a result in the result backend of '
                   'Celery. If there is neither, send the task again.'
               else 'it was good until %%s' end, j.good_until))
      from jobs_to_expire
     where j.id = any(array[jobs_to_expire.id])
 returning j.id as job_id, j.state, j.execution_id, j.kind
)
select state, count(*) as jobs, {{ends_to_propagate}}
  from expired_jobs group by state

-- statement: fail_unmatched_jobs
-- Set pending jobs to FAILED that no worker may run, one batch, and count them by their tags. Called by the sweep.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool, batch bigint
-- returns: state text, required_tags text[], reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[]
-- row: UnmatchedJobs
with recursive {{pending_tag_sets}},
{{jobs_without_worker}},
-- Unmatched jobs that waited too long. They are locked below only if they still wait, without an attempt in between.
overdue_jobs as materialized (
    select j.id, j.pending_observed
      from unmatched_jobs j
     cross join liveness_clock clock
     where not {{waits_for_worker(j)}}
       and clock.reading - {{unmatched_since(j)}} > %(unmatched_after)s
       and j.available_at < clock_timestamp() - make_interval(secs => %(unmatched_after)s)
       and not exists (select from liveness_instance where maintenance_since is not null)
     order by j.id
),
jobs_to_fail as (
    select locked_job.id
      from overdue_jobs
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = overdue_jobs.id and j.state = 'PENDING' and j.pending_observed = overdue_jobs.pending_observed and {{root_is_locked(j)}}
              for no key update skip locked
           ) locked_job
     limit %(batch)s
),
-- due: select id from jobs_to_fail
failed_jobs as (
    update jobs_workerjob j
       set state = 'FAILED', finished_at = clock_timestamp(),
           error = jsonb_build_object(
               'code', 'NO_MATCHING_WORKER', 'message', case
                   when (j.namespace, j.required_tags, j.worker_slots) in (select namespace, required_tags, worker_slots from too_large_sets)
                   then format('No active worker with required tags has the %%s slots that it needs', j.worker_slots)
                   else 'No active worker with required tags to run this step' end,
               'required_tags', to_jsonb(j.required_tags))
      from jobs_to_fail
     where j.id = any(array[jobs_to_fail.id])
 returning j.id as job_id, j.state, j.required_tags, j.error ->> 'message' as reason, j.execution_id, j.step, j.kind
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'NO_MATCHING_WORKER', step, format('%%s: %%s', step, reason)
      from failed_jobs where execution_id is not null
)
select state, required_tags, reason, count(*) as jobs, {{ends_to_propagate}}
  from failed_jobs group by state, required_tags, reason

-- statement: list_stale_attempts
-- List live attempts without a sign of life for longer than the thresholds, the most silent first. `after` and `alive`
-- are the last row of the previous page (null: the first page). The order is that of the last signs of life, so the next
-- page continues correctly although time has passed. Changes nothing.
-- takes: claimed_stale_after float8, running_stale_after float8, after uuid, alive float8, limit bigint
-- returns: id uuid, number int, state text, job uuid, job_name text, server uuid, server_name text,
--   hostname text|null, pid int|null, silence float8, alive float8, last_sign_at timestamptz
-- row: StaleAttempt
select a.id, a.number, a.state, j.id as job, coalesce(nullif(j.name, ''), {{action_name(j)}}) as job_name,
       s.id as server, s.name as server_name, s.hostname, a.pid,
       clock.reading - a.alive_observed as silence, a.alive_observed as alive, greatest(a.heartbeat_at, a.started_at, a.claimed_at) as last_sign_at
{{silent_attempts}}
   and (%(after)s::uuid is null or (a.alive_observed, a.id) > (%(alive)s::float8, %(after)s::uuid))
 order by a.alive_observed, a.id
 limit %(limit)s

-- statement: count_stale_attempts
-- Count live attempts without a sign of life, by state. A threshold that is null counts none.
-- takes: claimed_stale_after float8, running_stale_after float8
-- returns: state text, attempts bigint
select a.state, count(*) as attempts
{{silent_attempts}}
 group by a.state
