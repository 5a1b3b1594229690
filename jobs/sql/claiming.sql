-- statement: lock_server
-- Claims of one server go one by one, and its state and capacity stand still meanwhile.
-- takes: server uuid
-- returns: id uuid
select s.id from liveness_server s where s.id = %(server)s for no key update

-- statement: claim_jobs
-- Give a worker jobs that it may and can run: priority, then age. Its row is locked by `lock_server`.
-- The queue of its namespace is read once per set of required tags that the worker satisfies, so a hundred thousand jobs that
-- it may not have are never walked over. The one row without an attempt says that there is none.
-- takes: server uuid, version int, staleness_multiplier float8, request uuid, limit bigint, only uuid[], most bigint
-- returns: server uuid|null, obstacle text|null, id uuid|null, number int, job uuid, kind text, action jsonb,
--   payload jsonb|null, timeout_seconds float8|null, execution uuid|null, step text|null,
--   checkpoint jsonb|null, traceparent text|null, former_traceparent text|null
-- row: GivenAttempt
with recursive caller as (
    select s.id, s.namespace, s.tags, s.max_concurrent, {{liveness.obstacle_to_work(s)}} as obstacle
      from liveness_server s
     where s.id = %(server)s and s.token_version = %(version)s
),
worker as (
    select * from caller where obstacle is null
),
repeated_claim as (
    -- Whatever has become of the server since, its attempts are its own: a claim whose answer was lost is answered.
    select a.id, a.number, a.job_id, a.state, a.server_id
      from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.request_id = %(request)s and s.id = %(server)s
       and s.token_version = %(version)s and s.state not in {{RETIRED}}
),
capacity as (
    select least(%(limit)s, {{free_capacity(worker)}}) as jobs
      from worker where not exists (select from repeated_claim)
),
one_namespace as (select worker.namespace from worker),
{{pending_tag_sets_of_one}},
picked_jobs as (
    select waiting_jobs.id as job_id
      from worker
      join tag_sets on {{is_suited(worker, tag_sets)}}
     cross join lateral (
           select j.id, j.priority, j.available_at
             from jobs_workerjob j
            where j.state = 'PENDING' and j.namespace = tag_sets.namespace
              and j.required_tags = tag_sets.required_tags and {{may_be_claimed(j)}}
              and not {{has_refused(worker, j)}}
              and (%(only)s::uuid[] is null or j.id = any(%(only)s))
            order by j.priority desc, j.available_at, j.id
            limit coalesce((select greatest(jobs, 0) from capacity), 0)
              for no key update skip locked
           ) waiting_jobs
     order by waiting_jobs.priority desc, waiting_jobs.available_at, waiting_jobs.id
     limit coalesce((select greatest(jobs, 0) from capacity), 0)
),
fitting as (
    -- As many as one answer holds, the first in any case; the others are for the next claim.
    select sized.job_id
      from (select picked_jobs.job_id, size.bytes, sum(size.bytes) over (
                       order by picked_jobs.place rows between unbounded preceding and current row) as total
              from (select job_id, row_number() over () as place from picked_jobs) picked_jobs
             cross join lateral (
                   select octet_length(j.action::text) + coalesce(octet_length(j.payload::text), 0)
                          + coalesce(octet_length(j.checkpoint::text), 0) as bytes
                     from jobs_workerjob j where j.id = picked_jobs.job_id offset 0
                   ) size
           ) sized
     where sized.total - sized.bytes < %(most)s
),
claimed_jobs as (
    update jobs_workerjob j
       set state = 'CLAIMED', attempt_id = uuid7(), attempt_count = j.attempt_count + 1
     where j.id = any(array(select job_id from fitting))
 returning j.attempt_id as id, j.attempt_count as number, j.id as job_id
),
new_attempts as (
    insert into jobs_attempt (id, job_id, number, server_id, request_id, alive_observed)
    select id, job_id, number, %(server)s, %(request)s, (select observed_now()) from claimed_jobs
),
given_attempts as (
    select * from claimed_jobs
    union all
    select id, number, job_id from repeated_claim where state in {{LIVE}}
)
select coalesce(worker.id, (select server_id from repeated_claim limit 1)) as server,
       (select obstacle from caller) as obstacle, given_attempts.id, given_attempts.number, j.id as job, j.kind,
       j.action, j.payload, j.timeout_seconds, j.execution_id as execution, j.step, j.checkpoint,
       j.traceparent, j.attempt_traceparent as former_traceparent
  from (select 1) single_row
  left join worker on true
  left join given_attempts on true
  left join lateral (select * from jobs_workerjob j where j.id = given_attempts.job_id offset 0) j on true
 order by j.priority desc, j.available_at, j.id
