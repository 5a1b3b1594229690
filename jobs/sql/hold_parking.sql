-- statement: park_held_jobs
-- Park the next waiting jobs by id that a hold of an action, a limit key or an execution covers, so that claims do not read
-- them. A job whose hold does not cover it any more is unparked. The holds stay locked until the commit, so none of them ends
-- before. `read` jobs were read after the job `after`, up to the job `last`. Without such a hold nothing is read.
-- takes: after uuid, most bigint
-- returns: read bigint, last uuid|null, parked bigint, unparked bigint
-- row: ParkedBatch
with held as materialized (
    select hold.* from jobs_hold hold
     where hold.kind in ('action', 'limit', 'execution') and {{is_in_force(hold)}}
     order by hold.id
       for share
),
next_jobs as materialized (
    select j.id, j.parked_by,
           case when j.kind <> 'CELERY' and not {{needs_no_worker(j)}} and not {{is_parked_by_loop(j)}}
                     and not {{is_parked_by_execution(j)}} then (
                select hold.id from held hold
                 where {{covers_content(hold, j)}} or {{covers_execution(hold, j)}}
                 order by hold.id::text = j.parked_by ->> 'hold' desc nulls last, hold.id limit 1) end as hold
      from (select * from jobs_workerjob j
             -- Only the index job_by_state has this range and order, so PostgreSQL reads nothing else.
             where j.state <= 'PENDING' and (j.state, j.id) > ('PENDING', %(after)s::uuid) and exists (select from held)
             order by j.state, j.id
             limit %(most)s) j
),
jobs_to_change as materialized (
    select next_jobs.id, next_jobs.hold
      from next_jobs
     -- Without the state among its conditions, PostgreSQL looks the job up by its key, also with poor statistics.
     cross join lateral (
           select j.state, j.parked_by from jobs_workerjob j
            where j.id = next_jobs.id limit 1
              for no key update skip locked) locked_job
     where next_jobs.hold::text is distinct from next_jobs.parked_by ->> 'hold'
       and locked_job.state = 'PENDING' and locked_job.parked_by is not distinct from next_jobs.parked_by
),
changed_jobs as (
    update jobs_workerjob j
       set parked_by = case when jobs_to_change.hold is null then {{parked_after_hold(j)}}
                            else jsonb_build_object('hold', jobs_to_change.hold) end,
           pending_observed = case when jobs_to_change.hold is null then observed_now() else j.pending_observed end
      from jobs_to_change
     where j.id = any(array[jobs_to_change.id])
 returning jobs_to_change.hold, j.limits
),
-- The keys of a parked job are free for other jobs now.
new_rechecks as (
    insert into jobs_limitrecheck (key)
    select distinct keys.key from changed_jobs, jsonb_object_keys(changed_jobs.limits) keys (key)
)
select (select count(*) from next_jobs) as read, (select id from next_jobs order by id desc limit 1) as last,
       (select count(*) from changed_jobs where hold is not null) as parked,
       (select count(*) from changed_jobs where hold is null) as unparked

-- statement: list_holds_to_unpark
-- List the holds that have ended and still park jobs: one index probe for each hold, however many jobs are parked.
-- returns: id uuid
with recursive parking_holds (id) as (
    (select j.parked_by ->> 'hold' from jobs_workerjob j
      where {{is_parked_by_hold(j)}} order by j.parked_by ->> 'hold' limit 1)
     union all
    select next_hold.id
      from parking_holds
     cross join lateral (
           select j.parked_by ->> 'hold' as id from jobs_workerjob j
            where {{is_parked_by_hold(j)}} and j.parked_by ->> 'hold' > parking_holds.id
            order by j.parked_by ->> 'hold' limit 1) next_hold
)
select p.id::uuid as id from parking_holds p
 where not exists (select from jobs_hold hold where hold.id = p.id::uuid and {{is_in_force(hold)}})

-- statement: unpark_held_jobs
-- Unpark the next jobs of a hold that has ended, in the order of claims, and count them.
-- takes: hold uuid, most bigint
-- returns: unparked bigint
-- row: UnparkedBatch
with jobs_to_unpark as materialized (
    select j.id from jobs_workerjob j
     where {{is_parked_by_hold(j)}} and j.parked_by ->> 'hold' = %(hold)s::uuid::text
     order by j.priority desc, j.available_at, j.id
     limit %(most)s
       for no key update skip locked
),
unparked_jobs as (
    update jobs_workerjob j
       set parked_by = {{parked_after_hold(j)}}, pending_observed = observed_now()
      from jobs_to_unpark
     where j.id = any(array[jobs_to_unpark.id])
 returning j.limits
),
new_rechecks as (
    insert into jobs_limitrecheck (key)
    select distinct keys.key from unparked_jobs, jsonb_object_keys(unparked_jobs.limits) keys (key)
)
select count(*) as unparked from unparked_jobs
