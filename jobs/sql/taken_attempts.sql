-- prepared statement: release_taken_attempts
-- Release attempts that were taken from a server, so that the next attempts of their jobs can begin. Called by the
-- liveness check. An attempt is released if its code cannot run any more, or if its server was asked to stop it for
-- `cancel_timeout` seconds.
-- takes: cancel_timeout float8, only bigint[]
-- returns: attempt uuid, job uuid, server uuid, name text, disobeys bool
-- row: ReleasedAttempt
with attempts_to_release as materialized (
    select t.id, t.attempt_id, t.job_id, t.had_begun, s.id as server_id, s.name, s.state,
           coalesce({{code_stops_at(s)}} > clock.reading and s.state not in {{STOPPED}}, false) as disobeys
      from jobs_takenattempt t
      left join liveness_server s on s.id = t.server_id
     cross join liveness_clock clock
     where (s.id is null
            or s.state in {{STOPPED}}
            or {{code_stops_at(s)}} <= clock.reading
            or t.told_observed + %(cancel_timeout)s <= s.heard_observed)
       and (%(only)s::bigint[] is null or t.id = any(%(only)s))
     order by t.id
       for update of t skip locked
),
-- due: select id from attempts_to_release
released_attempts as (
    delete from jobs_takenattempt t using attempts_to_release where t.id = any(array[attempts_to_release.id])
),
freed_slots as (
    -- Code that does not stop keeps its slots: see `free_slots`.
    delete from jobs_limitslot slot
     where slot.attempt_id = any(array(select attempt_id from attempts_to_release where not disobeys))
 returning slot.key
),
{{recheck_freed_keys}},
kept_slots as (
    -- An attempt whose code may still run also gets the slots of its execution and of those above. Their ends free
    -- their own slots. Copies of a taken attempt in reruns do not count. Each attempt gets slots of its own, because any of
    -- them may be the last one to stop. So such an execution counts more than once until then: others start later, but
    -- never too many.
    insert into jobs_limitslot (key, namespace, attempt_id, amount)
    select slot.key, slot.namespace, released.attempt_id, slot.amount
      from attempts_to_release released
      join jobs_attempt a on a.id = released.attempt_id and a.job_id = released.job_id
      join jobs_workerjob j on j.id = released.job_id
     cross join lateral (
           with recursive above (id, parent_step_id) as (
               select e.id, e.parent_step_id from jobs_execution e where e.id = j.execution_id
                union all
               select e.id, e.parent_step_id
                 from (select parent_step_id from above limit 1) above
                cross join lateral (select w.execution_id from jobs_workerjob w where w.id = above.parent_step_id offset 0) p
                cross join lateral (select * from jobs_execution x where x.id = p.execution_id offset 0) e)
           select id from above) of_execution
      join jobs_limitslot slot on slot.execution_id = of_execution.id
     where released.disobeys and released.had_begun
),
new_events as (
    insert into liveness_serverevent (
        subject_type, subject_id, subject_name, server_id, server_name, from_state, to_state, action, actor, reason)
    select distinct 'server', server_id::text, name, server_id, name, state, state, 'does_not_stop', 'liveness',
           format('asked for %%s s to stop attempt %%s, it did not confirm that: the job continues elsewhere',
                  %(cancel_timeout)s::float8, attempt_id)
      from attempts_to_release where disobeys
)
select attempt_id as attempt, job_id as job, server_id as server, name, disobeys from attempts_to_release
