-- The heartbeat of a worker and of what it holds, and in the same breath what it is to cancel and what it lost.
with {{liveness.said}},
{{liveness.beat}},
signs as (
    select unnest(%(claimed)s::uuid[]) as id, 'claimer' as role, null::int as pid
    union all
    select r.id, 'runner', r.pid from unnest(%(running)s::uuid[], %(pids)s::int[]) as r(id, pid)
),
owned as (
    select a.id, a.job_id from jobs_attempt a join beat on beat.id = a.server_id where a.state in {{LIVE}}
),
free as (
    -- A report that is under way holds its attempts in another order; they are alive without our saying so.
    select a.id from jobs_attempt a join owned using (id) join signs using (id)
     where a.state in {{LIVE}}
       for no key update of a skip locked
),
heard as (
    update jobs_attempt a
       set heartbeat_at = clock_timestamp(), alive_observed = observed_now(), pid = coalesce(signs.pid, a.pid)
      from signs, free
     where a.id = signs.id and a.id = free.id and a.state in {{LIVE}}
 returning a.id, a.heartbeat_at, signs.role, signs.pid
),
taken as materialized (
    select t.attempt_id as id,
           -- Who does not say what it stopped, has stopped by its next heartbeat what it was told of, unless it lists it.
           case when %(stopped)s::uuid[] is null
                then t.told_observed is not null and t.attempt_id <> all(%(listed)s::uuid[])
                else t.attempt_id = any(%(stopped)s::uuid[]) end as is_confirmed
      from jobs_takenattempt t join beat on beat.id = t.server_id
),
confirmed as (
    delete from jobs_takenattempt t using taken where t.attempt_id = taken.id and taken.is_confirmed
),
told as (
    update jobs_takenattempt t set told_observed = observed_now()
      from taken where t.attempt_id = taken.id and not taken.is_confirmed and t.told_observed is null
),
heard_noted as (
    insert into liveness_heartbeat (at, server_id, attempt_id, role, hostname, pid)
    select heard.heartbeat_at, beat.id, heard.id, heard.role, beat.hostname, heard.pid from heard, beat
)
select beat.state, beat.heartbeat_interval, beat.timeout, beat.termination_grace_period,
       beat.worker_task_restart_strategy, beat.cordoned_by, beat.fence_after,
       beat.drain_deadline, (select maintenance_since is not null from liveness_instance) as maintenance,
       array(select owned.id from owned join jobs_workerjob j on j.id = owned.job_id
              where j.cancel_requested_at is not null) as cancel,
       array(select signs.id from signs where signs.id not in (select id from owned)
              union
             select taken.id from taken where not taken.is_confirmed) as lost
  from beat
