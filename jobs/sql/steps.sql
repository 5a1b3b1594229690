-- step: end_attempts(held) -> verdicts
-- What becomes of jobs whose attempt ends, whoever ended it. `held` are the jobs, locked, with job_id, id (the attempt),
-- was (its state), event, output, error, reason, actor, server_id, and of the job cancel_requested_at, on_worker_lost,
-- resubmissions, retries, available_at. Events: COMPLETED, FAILED, CANCELLED, RELEASED are a worker's words, and of a
-- Celery task RETRIED; LOST: its worker is; MOVED: an operator moves it; ENDED: it is failed, and that is final.
ending_attempts as (
    select held.*, j.max_retries, j.retry_delay_seconds, j.retry_backoff, j.retry_on, j.kind, j.execution_id, j.step,
           {{stopped_by_execution(j)}} as is_stopped,
           was = 'RUNNING' and (event = 'LOST' or event = 'FAILED' and held.error ->> 'code' = 'WORKER_CRASHED') as loss
      from held
     -- Each by its key, whatever the statistics say.
     cross join lateral (select * from jobs_workerjob j where j.id = held.job_id offset 0) j
),
retry_decisions as (
    select ending_attempts.*,
           -- How often a Celery task may be lost is its worker's to say: it is the broker that gives it out again.
           loss and on_worker_lost = 'RESUBMIT' and resubmissions >= %(max_resubmissions)s and kind <> 'CELERY' as exhausted,
           -- A loss is no error of the job's own code: it is retried only where the job names its code.
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
verdicts as (
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
           -- Never all at one moment: bystanders part from the job that kills their worker (0, 10, 60 s).
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
       set state = v.attempt_state, finished_at = v.at, error = v.error, ended_by = v.actor, reason = v.reason
      from verdicts v
     where a.id = any(array[v.id])
),
updated_jobs as (
    update jobs_workerjob j
       set state = v.job_state, attempt_id = null,
           output = case when v.job_state = 'COMPLETED' then v.output end,
           error = case when v.job_state = 'FAILED' then v.job_error end,
           finished_at = case when v.job_state <> 'PENDING' then v.at end,
           resubmissions = j.resubmissions
               + case when v.loss and v.attempt_state = 'RESUBMITTED' then 1 else 0 end,
           retries = j.retries + case when v.retried and v.job_state = 'PENDING' then 1 else 0 end,
           pending_observed = (select observed_now()),
           available_at = case when v.delay > 0 then v.at + make_interval(secs => v.delay) else j.available_at end,
           refused_by = case when v.event = 'RELEASED' and v.reason = 'not_allowed'
                             then j.refused_by || v.server_id else j.refused_by end
      from verdicts v
     where j.id = any(array[v.job_id])
),
taken_attempts as (
    -- What its server did not end itself, may still run there: see jobs.models.TakenAttempt.
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun)
    select v.id, v.job_id, s.id, v.was = 'RUNNING'
      from verdicts v
      join liveness_server s on s.id = v.server_id
     cross join liveness_clock clock
     where v.actor <> 'server' and v.kind <> 'CELERY' and s.state not in {{STOPPED}} and {{code_stops_at(s)}} > greatest(clock.reading, s.state_changed_observed)
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, server_id, line)
    select v.execution_id, new_event.code, v.step, v.server_id,
           format('%%s: attempt %%s, job %%s: %%s', v.step, v.attempt_state, v.job_state, v.reason)
      from verdicts v
     cross join lateral (
           select case
               when v.job_state = 'PENDING' and v.retried then 'RETRY'
               when v.attempt_state = 'RESUBMITTED' then 'JOB_RESUBMITTED'
               when v.job_state = 'PENDING' then 'JOB_REQUEUED'
               when v.job_state = 'FAILED' and v.loss then 'WORKER_CRASHED'
               when v.job_state = 'FAILED' and v.error ->> 'code' = 'STEP_TIMEOUT' then 'STEP_TIMEOUT'
           end as code) new_event
     where v.execution_id is not null and new_event.code is not null
),
attempt_tallies as (
    insert into liveness_tally (name, labels, number)
    select 'attempts', array[attempt_state], count(*) from verdicts group by attempt_state
    union all
    select 'resubmissions', array[case event when 'FAILED' then 'CRASHED' else event end], count(*)
      from verdicts where attempt_state = 'RESUBMITTED' group by 2
    union all
    select 'quarantined', '{}', count(*) from verdicts
     where job_state = 'FAILED' and job_error ->> 'code' in {{QUARANTINED}}
    having count(*) > 0
)

-- step: count_verdicts(verdicts)
-- How many attempts ended how, by server: which they were stands in their rows.
select v.attempt_state as state, v.job_state, v.server_id::text as server, v.reason, count(*) as jobs, {{ends_to_propagate}},
       (array_agg(v.id))[1:100] as attempts
  from verdicts v
 group by v.attempt_state, v.job_state, v.server_id, v.reason

-- step: list_verdicts(verdicts)
-- What became of each attempt and of its job.
select v.id as attempt, v.job_id as job, v.server_id as server, v.attempt_state, v.job_state, v.reason,
       v.execution_id as execution, v.kind
  from verdicts v

-- step: pending_tag_sets -> tag_sets
-- The sets of required tags that pending jobs have, by namespace: one index probe each, however many jobs wait.
tag_sets (namespace, required_tags) as (
    (select j.namespace, j.required_tags from jobs_workerjob j
      where j.state = 'PENDING' order by j.namespace, j.required_tags limit 1)
    union all
    select next_set.namespace, next_set.required_tags
      from tag_sets
     cross join lateral (
           select j.namespace, j.required_tags from jobs_workerjob j
            where j.state = 'PENDING' and (j.namespace, j.required_tags) > (tag_sets.namespace, tag_sets.required_tags)
            order by j.namespace, j.required_tags limit 1) next_set
)

-- step: pending_tag_sets_of_one(one_namespace) -> tag_sets
-- Those of the one namespace in `one_namespace`.
tag_sets (namespace, required_tags) as (
    select one_namespace.namespace, first_set.required_tags
      from one_namespace
     cross join lateral (
           select j.required_tags from jobs_workerjob j
            where j.state = 'PENDING' and j.namespace = one_namespace.namespace
            order by j.required_tags limit 1) first_set
     union all
    select tag_sets.namespace, next_set.required_tags
      from tag_sets
     cross join lateral (
           select j.required_tags from jobs_workerjob j
            where j.state = 'PENDING' and j.namespace = tag_sets.namespace and j.required_tags > tag_sets.required_tags
            order by j.required_tags limit 1) next_set
)

-- step: tag_sets_without_worker(tag_sets) -> tag_sets_without_worker
-- Those sets of tags that no alive worker of the namespace has. One that is stale, cordoned, draining or full counts, for
-- it may come back; of a cluster in maintenance also one that has ended.
tag_sets_without_worker as materialized (
    select tag_sets.namespace, tag_sets.required_tags from tag_sets
     -- What has the empty tag is dispatched by the control plane itself.
     where tag_sets.required_tags <> array['']
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and {{is_suited(s, tag_sets)}})
       -- What a cluster in maintenance has had is to come back.
       and not exists (
           select from liveness_clustermaintenance m join liveness_server s using (cluster)
            where s.type = 'WORKER' and {{is_suited(s, tag_sets)}})
)

-- step: runners_without_worker -> runners_without_worker
-- Of the sets of tags that the runners of what is submitted ask for, those that no worker of the namespace has, nor had
-- within UNMATCHED_AFTER, though workers are there: what waits for them fails for want of one. None in maintenance, nor
-- for so long after it.
tag_sets (namespace, required_tags) as (
    select %(namespace)s::text, array(select jsonb_array_elements_text(runner))
      from jsonb_array_elements(%(runners)s::jsonb) r(runner)
     where %(unmatched_after)s::float8 is not null
),
{{tag_sets_without_worker}},
runners_without_worker as (
    select required_tags
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
-- Pending jobs that no alive worker may have: none has their tags, or all that have them gave the job back as not allowed.
-- Judged once per set of tags, of which `scan_limit` jobs are looked at (null: all), and one by one where a job was
-- refused, which few are.
{{tag_sets_without_worker}},
unmatched_jobs as (
    select jobs_of_tag_set.*
      from tag_sets_without_worker
     cross join lateral (
           select j.* from jobs_workerjob j
            where j.state = 'PENDING' and j.namespace = tag_sets_without_worker.namespace
              and j.required_tags = tag_sets_without_worker.required_tags
              and (%(only)s::uuid[] is null or j.id = any(%(only)s))
            -- Along job_to_claim, whatever the statistics say.
            order by j.priority desc, j.available_at, j.id
            limit %(scan_limit)s) jobs_of_tag_set
     union all
    select j.*
      from jobs_workerjob j
     where j.state = 'PENDING' and j.refused_by <> '{}'
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
-- Jobs that fail for want of a worker unless one comes, and in how many seconds of observed time.
to_be_failed as (
    select j.id, j.required_tags as tags,
           greatest(0, {{unmatched_since(j)}} + %(unmatched_after)s::float8 - (select observed_now()),
                    extract(epoch from j.available_at - clock_timestamp())::float8 + %(unmatched_after)s::float8) as seconds
      from unmatched_jobs j
     where j.available_at <= clock_timestamp() and not {{waits_for_worker(j)}}
)

-- step: flagged_jobs(unmatched_jobs) -> flagged
-- Jobs that stand still until somebody sees to them, and why.
flagged as (
    select j.id, j.required_tags as tags,
           case
               when j.unmatched = 'fail' and %(unmatched_after)s::float8 is not null then 'waits_after_loss'
               when (j.namespace, j.required_tags) in (select namespace, required_tags from tag_sets_without_worker)
                   then 'waits_for_tags'
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
)

-- step: tags_without_worker(submitted) -> tags_without_worker
-- The sets of tags among what was submitted that need a worker and find none, and the filter that is in the way: of the
-- workers of the namespace that have the tags, that of the one which came furthest. A full worker counts: it will have
-- room.
tags_without_worker as materialized (
    select wanted.namespace, wanted.need, obstacle.filter
      -- As one array, which PostgreSQL takes for ten: of the lists in JSON it would expect ten thousand.
      from unnest(array(select distinct jsonb_build_array(submitted.namespace, n.need)
                          from submitted cross join jsonb_array_elements(submitted.needs) n(need))) pair
     cross join lateral (select pair ->> 0 as namespace, pair -> 1 as need) wanted
     cross join lateral (
           select wanted.namespace, array(select jsonb_array_elements_text(wanted.need)) as required_tags) needed
     cross join lateral (
           select case
                      when bool_or(s.obstacle is null) filter (where s.has_tags) then 'capacity'
                      -- It says so itself while it is in maintenance.
                      when bool_and(s.state = 'MAINTENANCE') filter (where s.has_tags) then 'maintenance'
                      when bool_or(s.has_tags) then ({{liveness.filters}})[
                          max(array_position({{liveness.filters}}, s.obstacle)) filter (where s.has_tags)]
                      when bool_or(s.is_fresh) then 'tags'
                      else 'freshness'  -- or nobody is there
                  end as filter
             from (select s.state, {{liveness.obstacle_to_work(s)}} as obstacle, {{liveness.is_fresh(s)}} as is_fresh,
                          {{is_suited(s, needed)}} as has_tags
                     from liveness_server s
                    where s.type = 'WORKER' and s.state in {{ALIVE}} and s.namespace = wanted.namespace) s
           ) obstacle
     where not exists (
        select from liveness_server s
         where {{liveness.may_get_work(s)}} and s.max_concurrent > 0 and {{is_suited(s, needed)}})
)
