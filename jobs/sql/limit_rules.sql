-- statement: lock_rules
-- Wait until no claim runs, and let none begin until the end of the transaction. Claims hold the shared lock (`lock_server`).
-- So each claim either sees a new rule by action, tag or namespace, or has committed the attempts that the rule must count.
-- It must be the first lock of the transaction.
-- returns: locked bool
-- row: LockedRules
select true as locked from (select pg_advisory_xact_lock({{RULES_LOCK}})) locked

-- statement: lock_running_jobs
-- Lock the jobs that run now and that a rule by action, tag or namespace limits. A job whose attempt ends at this moment is
-- waited for, and `count_running_jobs` then sees if its code may still run.
-- takes: pattern text, namespace text
-- returns: id uuid
select j.id from jobs_attempt a join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
 where {{is_live(a)}} and {{is_limited_by_pattern(j)}}
 order by j.id
   for no key update of j

-- statement: count_running_jobs
-- Give slots to what runs already, for the keys that rules add. `pattern` and `namespace` are those of a rule by action,
-- tag or namespace that was set in this transaction, after `lock_rules`. Called after `lock_running_jobs`, in the same
-- round trip.
-- takes: pattern text, namespace text
-- returns: slots bigint
-- row: CountedSlots
with held_jobs as materialized (
    select j.id, j.namespace, a.id as attempt, {{all_limits(j)}} as limits
      from jobs_attempt a join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
     where {{is_live(a)}} and {{is_limited_by_pattern(j)}}
),
limited_jobs as (
    update jobs_workerjob j set limits = held_jobs.limits from held_jobs
     where j.id = any(array[held_jobs.id]) and j.limits is distinct from held_jobs.limits
),
attempts as (
    select attempt, namespace, limits from held_jobs
     union all
    -- Code that may still run on the server that its job was taken from.
    select t.attempt_id, j.namespace, {{all_limits(j)}}
      from jobs_takenattempt t
      join jobs_attempt a on a.id = t.attempt_id
      join jobs_workerjob j on j.id = a.job_id
     where t.had_begun and {{is_limited_by_pattern(j)}}
),
new_slots as (
    insert into jobs_limitslot (key, namespace, attempt_id, amount)
    select distinct needed.key, attempts.namespace, attempts.attempt, needed.value::int
      from attempts cross join lateral jsonb_each_text(attempts.limits) needed
     where needed.key ~ '^(action|tag|namespace):'
       and not exists (select from jobs_limitslot slot where slot.attempt_id = attempts.attempt and slot.key = needed.key)
 returning key
)
select count(*) as slots from new_slots

-- statement: list_jobs_of_rule
-- List the jobs that wait and that a new rule by action, tag or namespace limits, in the order of the index
-- job_to_claim.
-- takes: pattern text, namespace text, most bigint
-- returns: id uuid
select j.id from jobs_workerjob j
 where {{is_claimable(j)}} and {{is_limited_by_pattern(j)}}
 order by j.namespace, j.required_tags, j.priority desc, j.turn, j.available_at, j.id
 limit %(most)s

-- statement: park_jobs_of_rule
-- Add the keys of rules to jobs that wait, and park them until somebody looks for free slots.
-- takes: jobs uuid[]
-- returns: key text
-- row: LimitKey
with jobs_to_park as materialized (
    select j.id, j.namespace, j.available_at, {{all_limits(j)}} as limits
      from jobs_workerjob j
     where j.id = any(%(jobs)s::uuid[]) and j.state = 'PENDING' and j.parked_by is null
     order by j.id
       for no key update skip locked
),
parked_jobs as (
    update jobs_workerjob j
       set limits = jobs_to_park.limits,
           parked_by = case when jobs_to_park.limits is not null
                            then parked_at_submission(jobs_to_park.limits, jobs_to_park.namespace, jobs_to_park.available_at) end
      from jobs_to_park
     where j.id = any(array[jobs_to_park.id])
 returning j.limits
),
new_rechecks as (
    insert into jobs_limitrecheck (key)
    select distinct keys.key from parked_jobs, jsonb_object_keys(parked_jobs.limits) keys (key)
 returning key
)
select key from new_rechecks
