-- What becomes of jobs whose attempt ends, whoever ended it. `held` are the jobs, locked, with job_id, id (the attempt),
-- was (its state), event, output, error, reason, actor, server_id, and of the job cancel_requested_at, on_worker_lost,
-- resubmissions, retries, available_at. Events: COMPLETED, FAILED, CANCELLED, RELEASED are a worker's words; LOST: its
-- worker is; MOVED: an operator moves it; ENDED: it is failed, and that is final.
judged as (
    select held.*, j.max_retries, j.retry_delay_seconds, j.retry_backoff, j.retry_on, j.kind, j.execution_id, j.step,
           {{is_stopped}} as is_stopped,
           was = 'RUNNING' and (event = 'LOST' or event = 'FAILED' and held.error ->> 'code' = 'WORKER_CRASHED') as loss
      from held
     -- Each by its key, whatever the statistics say.
     cross join lateral (select * from jobs_workerjob j where j.id = held.job_id offset 0) j
),
weighed as (
    select judged.*,
           loss and on_worker_lost = 'RESUBMIT' and resubmissions >= %(max_resubmissions)s as exhausted,
           -- A loss is no error of the job's own code: it is retried only where the job names its code.
           (event = 'FAILED' or loss) and retries < max_retries
               and not (loss and on_worker_lost = 'RESUBMIT')
               and case when retry_on is null then not loss
                        else error ->> 'code' = any(retry_on) end as retried
      from judged
),
decided as (
    select weighed.*,
           case
               when event = 'COMPLETED' then 'COMPLETED'
               when event = 'ENDED' then 'FAILED'
               when event = 'CANCELLED' or cancel_requested_at is not null or is_stopped then 'CANCELLED'
               when event in ('RELEASED', 'MOVED') or event = 'LOST' and was = 'CLAIMED' then 'PENDING'
               when loss and on_worker_lost = 'RESUBMIT' and not exhausted then 'PENDING'
               when retried then 'PENDING'
               else 'FAILED'
           end as job_state
      from weighed
),
verdict as (
    select decided.*,
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
      from decided
),
ended as (
    update jobs_attempt a
       set state = v.attempt_state, finished_at = v.at, error = v.error, ended_by = v.actor, reason = v.reason
      from verdict v
     where a.id = v.id
),
settled as (
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
      from verdict v
     where j.id = v.job_id
),
taken as (
    -- What its server did not end itself, may still run there: see jobs.models.TakenAttempt.
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun)
    select v.id, v.job_id, s.id, v.was = 'RUNNING'
      from verdict v
      join liveness_server s on s.id = v.server_id
     cross join liveness_clock clock
     where v.actor <> 'server' and s.state not in {{STOPPED}} and {{stops_at}} > greatest(clock.reading, s.state_changed_observed)
),
noted as (
    insert into jobs_executionevent (execution_id, code, step, server_id, line)
    select v.execution_id, noteworthy.code, v.step, v.server_id,
           format('%%s: attempt %%s, job %%s: %%s', v.step, v.attempt_state, v.job_state, v.reason)
      from verdict v
     cross join lateral (
           select case
               when v.job_state = 'PENDING' and v.retried then 'RETRY'
               when v.attempt_state = 'RESUBMITTED' then 'JOB_RESUBMITTED'
               when v.job_state = 'PENDING' then 'JOB_REQUEUED'
               when v.job_state = 'FAILED' and v.loss then 'WORKER_CRASHED'
               when v.job_state = 'FAILED' and v.error ->> 'code' = 'STEP_TIMEOUT' then 'STEP_TIMEOUT'
           end as code) noteworthy
     where v.execution_id is not null and noteworthy.code is not null
),
tallied as (
    insert into liveness_tally (name, labels, number)
    select 'attempts', array[attempt_state], count(*) from verdict group by attempt_state
    union all
    select 'resubmissions', array[case event when 'FAILED' then 'CRASHED' else event end], count(*)
      from verdict where attempt_state = 'RESUBMITTED' group by 2
    union all
    select 'quarantined', '{}', count(*) from verdict
     where job_state = 'FAILED' and job_error ->> 'code' in ('RESUBMISSIONS_EXHAUSTED', 'WORKER_CRASHED')
    having count(*) > 0
)
