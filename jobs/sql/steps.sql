-- step: end_attempts(held) -> ended_attempts
-- End attempts and decide what happens to their jobs. All statements that end attempts use this step. `held` has one
-- row for each job, which is locked: job_id, id (of the attempt), was (its state), event, output, error, reason, actor,
-- server_id, and the job's cancel_requested_at, on_worker_lost, resubmissions, retries and available_at.
-- A worker reports the events COMPLETED, FAILED, CANCELLED and RELEASED, and RETRIED for a Celery task. LOST means that
-- the worker is lost, MOVED that an operator moves the job, ENDED that the job fails and is not retried.
ending_attempts as (
    select held.*, j.max_retries, j.retry_delay_seconds, j.retry_backoff, j.retry_on, j.kind, j.execution_id, j.step, j.limits,
           {{stopped_by_execution(j)}} as is_stopped,
           was = 'RUNNING' and (event = 'LOST' or event = 'FAILED' and held.error ->> 'code' = 'WORKER_CRASHED') as loss
      from held
     -- `offset 0` makes PostgreSQL look up each job by its key, also with poor statistics.
     cross join lateral (select * from jobs_workerjob j where j.id = held.job_id offset 0) j
),
retry_decisions as (
    select ending_attempts.*,
           -- For a Celery task its worker limits how often it may be lost, because the broker delivers it again.
           loss and on_worker_lost = 'RESUBMIT' and resubmissions >= %(max_resubmissions)s and kind <> 'CELERY' as exhausted,
           -- A loss is not an error of the job's code. It is retried only if `retry_on` names its code.
           event = 'RETRIED' or (event = 'FAILED' or loss) and retries < max_retries
               and not (loss and on_worker_lost = 'RESUBMIT')
               and case when retry_on is null then not loss
                        else error ->> 'code' = any(retry_on) end as retried
      from ending_attempts
),
job_decisions as (
    select retry_decisions.*,
           case
               when event = 'COMPLETED' then 'COMPLETED'
               when event = 'ENDED' then 'FAILED'
               when event = 'CANCELLED' or cancel_requested_at is not null or is_stopped then 'CANCELLED'
               when event in ('RELEASED', 'MOVED') or event = 'LOST' and was = 'CLAIMED' then 'PENDING'
               when loss and on_worker_lost = 'RESUBMIT' and not exhausted then 'PENDING'
               when retried then 'PENDING'
               else 'FAILED'
           end as job_state
      from retry_decisions
),
ended_attempts as (
    select job_decisions.*,
           case
               when job_state <> 'PENDING' then job_state
               when retried then 'FAILED'
               when was = 'RUNNING' then 'RESUBMITTED'
               when event = 'RELEASED' then 'RELEASED'
               else 'REQUEUED'
           end as attempt_state,
           case when exhausted then jsonb_build_object(
                    'code', 'RESUBMISSIONS_EXHAUSTED',
                    'message', format('lost %%s times; not tried again', resubmissions + 1),
                    'cause', error)
                else error
           end as job_error,
           clock_timestamp() as at,
           -- Random delays, so that a job that kills its worker soon runs without other jobs beside it (0, 10, 60 s).
           (1 + random() / 4) * case
               when job_state <> 'PENDING' then 0
               when retried and retry_backoff = 'exponential'
                   then least(retry_delay_seconds * power(2, least(retries, 30)), 86400)
               when retried then retry_delay_seconds
               when loss then (array[0, 10, 60])[least(resubmissions, 2) + 1]
               else 0
           end as delay
      from job_decisions
),
updated_attempts as (
    update jobs_attempt a
       set state = v.attempt_state, finished_at = v.at, error = v.error, ended_by = v.actor, reason = v.reason,
           -- A released attempt has not begun, even if its worker reported the start.
           started_at = case when v.attempt_state <> 'RELEASED' then a.started_at end,
           started_observed = case when v.attempt_state <> 'RELEASED' then a.started_observed end
      from ended_attempts v
     where a.id = any(array[v.id])
),
updated_jobs as (
    update jobs_workerjob j
       set state = v.job_state, attempt_id = null,
           output = case when v.job_state = 'COMPLETED' then v.output end,
           -- A job that is cancelled at its deadline keeps that error.
           error = case when v.job_state = 'FAILED' then v.job_error
                        when v.job_state = 'CANCELLED' and j.cancel_requested_at is not null then j.error end,
           finished_at = case when v.job_state <> 'PENDING' then v.at end,
           resubmissions = j.resubmissions
               + case when v.loss and v.attempt_state = 'RESUBMITTED' then 1 else 0 end,
           retries = j.retries + case when v.retried and v.job_state = 'PENDING' then 1 else 0 end,
           pending_observed = (select observed_now()),
           -- No worker claims a Celery task. If its message is never received again, only this time ends it.
           good_until = case when v.kind = 'CELERY' and v.job_state = 'PENDING' then v.at + interval '1 day'
                             else j.good_until end,
           available_at = case when v.delay > 0 then v.at + make_interval(secs => v.delay) else j.available_at end,
           refused_by = case when v.event = 'RELEASED' and v.reason = 'not_allowed'
                             then j.refused_by || v.server_id else j.refused_by end
      from ended_attempts v
     where j.id = any(array[v.job_id])
),
taken_attempts as (
    -- Code that its server did not end itself may still run there: see jobs.models.TakenAttempt.
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun)
    select v.id, v.job_id, s.id, v.was = 'RUNNING'
      from ended_attempts v
      join liveness_server s on s.id = v.server_id
     cross join liveness_clock clock
     where v.actor <> 'server' and v.kind <> 'CELERY' and s.state not in {{STOPPED}} and {{code_stops_at(s)}} > greatest(clock.reading, s.state_changed_observed)
 returning attempt_id, had_begun
),
freed_slots as (
    -- Code that may still run keeps its slots until it has stopped: see `release_taken_attempts`.
    delete from jobs_limitslot slot
     where slot.attempt_id = any(array(
           select v.id from ended_attempts v
            where v.limits is not null and v.id not in (select t.attempt_id from taken_attempts t where t.had_begun)))
 returning slot.key
),
{{recheck_freed_keys}},
new_events as (
    insert into jobs_executionevent (execution_id, code, step, server_id, line)
    select v.execution_id, new_event.code, v.step, v.server_id,
           format('%%s: attempt %%s, job %%s: %%s', v.step, v.attempt_state, v.job_state, v.reason)
      from ended_attempts v
     cross join lateral (
           select case
               when v.job_state = 'PENDING' and v.retried then 'RETRY'
               when v.attempt_state = 'RESUBMITTED' then 'JOB_RESUBMITTED'
               when v.job_state = 'PENDING' then 'JOB_REQUEUED'
               when v.job_state = 'FAILED' and v.loss then 'WORKER_CRASHED'
               when v.job_state = 'FAILED' and v.error ->> 'code' = 'STEP_TIMEOUT' then 'STEP_TIMEOUT'
           end as code) new_event
     where v.execution_id is not null and new_event.code is not null
     union all
    select v.execution_id, 'CODE_MAY_RUN', v.step, v.server_id,
           format('%%s: its code may still run on %%s: what depends on it waits until that has stopped', v.step, s.name)
      from ended_attempts v
      join taken_attempts t on t.attempt_id = v.id and t.had_begun
      join liveness_server s on s.id = v.server_id
     where v.execution_id is not null and v.job_state <> 'PENDING'
       and exists (select from jobs_workerjob waiting
                    where waiting.execution_id = v.execution_id and waiting.state = 'BLOCKED')
),
attempt_tallies as (
    insert into liveness_tally (name, labels, number)
    select 'attempts', array[attempt_state], count(*) from ended_attempts group by attempt_state
    union all
    select 'resubmissions', array[case event when 'FAILED' then 'CRASHED' else event end], count(*)
      from ended_attempts where attempt_state = 'RESUBMITTED' group by 2
    union all
    select 'quarantined', '{}', count(*) from ended_attempts
     where job_state = 'FAILED' and job_error ->> 'code' in {{QUARANTINED}}
    having count(*) > 0
)

-- step: recheck_freed_keys(freed_slots)
-- Note the keys with freed slots, so that a later statement looks for their parked jobs. A look in this statement would
-- miss a job that is parked now.
new_rechecks as (
    insert into jobs_limitrecheck (key) select distinct freed_slots.key from freed_slots
)

-- step: count_ended_attempts(ended_attempts)
-- Count how attempts and jobs ended, by server and reason.
select v.attempt_state as state, v.job_state, v.server_id::text as server, v.reason, count(*) as jobs, {{ends_to_propagate}},
       (array_agg(v.id))[1:100] as attempts, bool_or(v.limits is not null) as is_limited
  from ended_attempts v
 group by v.attempt_state, v.job_state, v.server_id, v.reason

-- step: list_ended_attempts(ended_attempts)
-- List how each attempt and its job ended.
select v.id as attempt, v.job_id as job, v.server_id as server, v.attempt_state, v.job_state, v.reason,
       v.execution_id as execution, v.kind, v.limits is not null as is_limited
  from ended_attempts v

-- step: pending_tag_sets -> tag_sets
-- List the namespaces and sets of required tags of claimable jobs: one index probe for each, however many jobs wait.
tag_sets (namespace, required_tags) as (
    (select j.namespace, j.required_tags from jobs_workerjob j
      where {{is_claimable(j)}} order by j.namespace, j.required_tags limit 1)
    union all
    select next_set.namespace, next_set.required_tags
      from tag_sets
     cross join lateral (
           select j.namespace, j.required_tags from jobs_workerjob j
            where {{is_claimable(j)}}
              and (j.namespace, j.required_tags) > (tag_sets.namespace, tag_sets.required_tags)
            order by j.namespace, j.required_tags limit 1) next_set
)

-- step: pending_tag_sets_of(offers, known) -> tag_sets
-- List the sets of required tags of pending jobs that the workers of `offers` have (namespace, tags). The walk jumps over
-- all sets with a tag that its worker lacks (`next_tag_set`). So other sets cost nothing, however many wait. Sets on hold
-- are left out. It takes the sets of `known` (tags) for sets of pending jobs and looks only between them, so it reads no dead index entries of them.
walk (namespace, tags, required_tags) as (
    select offers.namespace, offers.tags, null::text[] from offers
     union all
    select walk.namespace, walk.tags, next_set.required_tags
      from walk
     cross join lateral (
           select case when walk.required_tags is null then '{}' else {{next_tag_set(walk)}} end as least offset 0) bound
     cross join lateral (select min(known.tags) as tags from known where known.tags >= bound.least) next_known
     cross join lateral (
           select case when bound.least is null then null
                       when next_known.tags is null then (
                            select j.required_tags from jobs_workerjob j
                             where {{is_claimable(j)}} and j.namespace = walk.namespace
                               and j.required_tags >= bound.least
                             order by j.required_tags limit 1)
                       else coalesce((
                            select j.required_tags from jobs_workerjob j
                             where {{is_claimable(j)}} and j.namespace = walk.namespace
                               and j.required_tags >= bound.least
                               and j.required_tags < next_known.tags
                             order by j.required_tags limit 1), next_known.tags) end as required_tags) next_set
     where next_set.required_tags is not null
),
tag_sets as (
    select distinct walk.namespace, walk.required_tags
      from walk
     where walk.required_tags <@ walk.tags and not {{is_held_set(walk)}}
)

-- step: tag_sets_without_worker(tag_sets) -> tag_sets_without_worker
-- List the sets of tags that no alive worker of the namespace has. A worker that is silent, cordoned, draining or full
-- counts as alive, because it may take work again. In a cluster in maintenance, workers that have ended count too. Sets on
-- hold are left out, because their jobs wait for another reason.
tag_sets_without_worker as materialized (
    select tag_sets.namespace, tag_sets.required_tags from tag_sets
     -- The control plane starts jobs with the empty tag itself.
     where tag_sets.required_tags <> array[''] and not {{is_held_set(tag_sets)}}
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and {{is_suited(s, tag_sets)}})
     -- The workers of a cluster in maintenance will come back.
       and not exists (
           select from liveness_clustermaintenance m join liveness_server s using (cluster)
            where s.type = 'WORKER' and {{is_suited(s, tag_sets)}})
)

-- step: runners_without_worker -> runners_without_worker
-- List the `runners` (pairs of a namespace and a set of tags) that no worker of the namespace has or had within
-- UNMATCHED_AFTER. Empty for a namespace without alive workers, and in maintenance and for UNMATCHED_AFTER after it.
tag_sets (namespace, required_tags) as (
    select runner ->> 0, array(select jsonb_array_elements_text(runner -> 1))
      from jsonb_array_elements(%(runners)s::jsonb) r(runner)
     where %(unmatched_after)s::float8 is not null
),
{{tag_sets_without_worker}},
runners_without_worker as (
    select namespace, required_tags
      from tag_sets_without_worker wanted
     where exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and s.namespace = wanted.namespace)
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and {{is_suited(s, wanted)}}
              and s.heard_observed > (select observed_now()) - %(unmatched_after)s::float8)
       and not exists (
           select from liveness_instance
            where maintenance_since is not null
               or maintenance_ended_observed > (select observed_now()) - %(unmatched_after)s::float8)
)

-- step: jobs_without_worker(tag_sets) -> unmatched_jobs
-- List pending jobs that no alive worker may run: none has their tags, or all workers with these tags refused the job.
-- Jobs are checked once for each set of tags (at most `scan_limit` of a set; null: all). The few jobs that a worker
-- refused are checked one by one, and those that need several slots once for each number of slots.
{{tag_sets_without_worker}},
too_large_sets as materialized (
    select q.namespace, q.required_tags, q.worker_slots
      from (select distinct j.namespace, j.required_tags, j.worker_slots from jobs_workerjob j
             where {{is_claimable_with_slots(j)}} and j.required_tags <> array['']
               and (%(only)s::uuid[] is null or j.id = any(%(only)s))) q
     where not {{is_held_set(q)}}
       and (q.namespace, q.required_tags) not in (select namespace, required_tags from tag_sets_without_worker)
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and {{is_suited(s, q)}} and s.max_concurrent >= q.worker_slots)
       and not exists (
           select from liveness_clustermaintenance m join liveness_server s using (cluster)
            where s.type = 'WORKER' and {{is_suited(s, q)}} and s.max_concurrent >= q.worker_slots)
),
unmatched_jobs as (
    select jobs_of_tag_set.*
      from tag_sets_without_worker
     cross join lateral (
           select j.* from jobs_workerjob j
            where {{is_claimable(j)}} and j.namespace = tag_sets_without_worker.namespace
              and j.required_tags = tag_sets_without_worker.required_tags and not {{is_held_by_content(j)}}
              and (%(only)s::uuid[] is null or j.id = any(%(only)s))
            order by j.priority desc, j.turn, j.available_at, j.id
            limit %(scan_limit)s) jobs_of_tag_set
     union all
    select jobs_of_set.*
      from too_large_sets q
     cross join lateral (
           select j.* from jobs_workerjob j
            where {{is_claimable_with_slots(j)}} and j.namespace = q.namespace
              and j.required_tags = q.required_tags and j.worker_slots = q.worker_slots
              and not {{is_held_by_content(j)}}
              and (%(only)s::uuid[] is null or j.id = any(%(only)s))
            limit %(scan_limit)s) jobs_of_set
     union all
    select j.*
      from jobs_workerjob j
     where j.state = 'PENDING' and j.parked_by is null and j.refused_by <> '{}'
       and (j.namespace, j.required_tags, j.worker_slots) not in (select namespace, required_tags, worker_slots from too_large_sets)
       and not {{is_held_set(j)}} and not {{is_held_by_content(j)}}
       and (j.namespace, j.required_tags) not in (select namespace, required_tags from tag_sets_without_worker)
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and {{is_suited(s, j)}}
              and not {{has_refused(s, j)}})
       and not exists (
           select from liveness_clustermaintenance m join liveness_server s using (cluster)
            where s.type = 'WORKER' and {{is_suited(s, j)}} and not {{has_refused(s, j)}})
)

-- step: jobs_to_be_failed(unmatched_jobs) -> to_be_failed
-- List jobs that will fail because no worker has their tags, and in how many seconds of observed time.
to_be_failed as (
    select j.id, {{wants(j)}} as tags,
           greatest(0, {{unmatched_since(j)}} + %(unmatched_after)s::float8 - (select observed_now()),
                    extract(epoch from j.available_at - clock_timestamp())::float8 + %(unmatched_after)s::float8) as seconds
      from unmatched_jobs j
     where j.available_at <= clock_timestamp() and not {{waits_for_worker(j)}}
)

-- step: flagged_jobs(unmatched_jobs) -> flagged
-- List jobs that a person should look at, and why. A job may be past its deadline for another reason of the list.
flagged as (
    select late.id, '{}'::text[] as tags, 'deadline_missed' as flag
      from (select j.id from jobs_workerjob j
             where j.deadline_at <= clock_timestamp() and j.finished_at is null
               and (%(only)s::uuid[] is null or j.id = any(%(only)s))
             order by j.deadline_at limit %(scan_limit)s) late
     union all
    select j.id, {{wants(j)}} as tags,
           case
               when j.unmatched = 'fail' and %(unmatched_after)s::float8 is not null then 'waits_after_loss'
               when (j.namespace, j.required_tags) in (select namespace, required_tags from tag_sets_without_worker)
                   then 'waits_for_tags'
               when (j.namespace, j.required_tags, j.worker_slots) in (select namespace, required_tags, worker_slots from too_large_sets)
                   then 'waits_for_slots'
               else 'refused_by_all'
           end as flag
      from unmatched_jobs j
     where j.available_at <= clock_timestamp() and {{waits_for_worker(j)}}
     union all
    select j.id, '{}'::text[], 'held_by_lost_server'
      from liveness_server s
     cross join liveness_clock clock
      join jobs_attempt a on a.server_id = s.id and a.state = 'RUNNING' and {{is_live(a)}}
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
     where s.worker_task_restart_strategy = 'NEVER' and s.state not in {{ALIVE}} and {{is_lost(s)}}
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
     union all
    -- Nothing ends these attempts automatically: the recovery of stale rows is switched off, or the strategy is NEVER.
    -- Attempts of a lost server are not among them.
    select j.id, '{}'::text[], case a.state when 'CLAIMED' then 'stale_claim' else 'stale_runner' end
      from liveness_server s
     cross join liveness_clock clock
      join jobs_attempt a on a.server_id = s.id and {{is_live(a)}}
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
     where not {{is_lost(s)}}
       and (a.state = 'RUNNING' and (not %(fails_stale_running)s or s.worker_task_restart_strategy = 'NEVER')
            and s.heard_observed - a.alive_observed > %(running_stale_after)s::float8
            or a.state = 'CLAIMED' and not %(requeues_stale_claimed)s
            and clock.reading - a.alive_observed > %(claimed_stale_after)s::float8)
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
)

-- step: tags_without_worker(submitted) -> tags_without_worker
-- List the sets of tags among the submitted jobs that need a worker now and find none, and the filter that keeps them
-- from a worker. If several workers of the namespace have the tags, it is the filter of the one that passes most
-- filters. A full worker counts as a worker, because it will have room again.
tags_without_worker as materialized (
    select wanted.namespace, wanted.need, wanted.slots, obstacle.filter
      -- An array, because PostgreSQL expects 10 rows from it. From the JSON lists it would expect 10,000.
      from unnest(array(select distinct jsonb_build_array(submitted.namespace, n.need, coalesce(submitted.worker_slots, 1))
                          from submitted cross join jsonb_array_elements(submitted.needs) n(need))) pair
     cross join lateral (select pair ->> 0 as namespace, pair -> 1 as need, (pair ->> 2)::int as slots) wanted
     cross join lateral (
           select wanted.namespace, array(select jsonb_array_elements_text(wanted.need)) as required_tags) needed
     cross join lateral (
           select case
                      when bool_or(s.obstacle is null) filter (where s.has_tags)
                          then case when wanted.slots > 1 then 'slots' else 'capacity' end
                      -- A server in maintenance has this state itself.
                      when bool_and(s.state = 'MAINTENANCE') filter (where s.has_tags) then 'maintenance'
                      when bool_or(s.has_tags) then ({{liveness.filters}})[
                          max(array_position({{liveness.filters}}, s.obstacle)) filter (where s.has_tags)]
                      when bool_or(s.is_fresh) then 'tags'
                      else 'freshness'  -- also if the namespace has no worker
                  end as filter
             from (select s.state, {{liveness.obstacle_to_work(s)}} as obstacle, {{liveness.is_fresh(s)}} as is_fresh,
                          {{is_suited(s, needed)}} as has_tags
                     from liveness_server s
                    where s.type = 'WORKER' and s.state in {{ALIVE}} and s.namespace = wanted.namespace) s
           ) obstacle
     where not exists (
        select from liveness_server s
         where {{liveness.may_get_work(s)}} and s.max_concurrent >= wanted.slots and {{is_suited(s, needed)}})
)
