-- prepared statement: record_worker_heartbeat
-- Record the heartbeat of a worker and of the attempts it lists. Return its instructions: the attempts to cancel and
-- those it has lost. Called for each heartbeat that `record_plain_heartbeats` cannot take.
-- takes: server uuid, version int, metrics jsonb, schedulable bool, reason text, witness bool, results text[],
--   counts int[], claimed uuid[], running uuid[], pids int[], stopped uuid[], listed uuid[], lists_all bool,
--   holders uuid[]
-- returns: state text, heartbeat_interval float8, timeout float8, termination_grace_period float8,
--   worker_task_restart_strategy text, cordoned_by text|null, fence_after float8|null,
--   drain_deadline timestamptz|null, maintenance bool, cancel uuid[], lost uuid[],
--   forsaken uuid[], unknown uuid[], send text[], held_queues text[], tags text[], max_concurrent int, dump uuid[]
-- row: RecordedHeartbeat
with {{liveness.beat_of_one_server}},
{{liveness.record_beats}},
{{liveness.new_cordon_event}},
listed_attempts as (
    select unnest(%(claimed)s::uuid[]) as id, 'claimer' as role, null::int as pid
    union all
    select r.id, 'runner', r.pid from unnest(%(running)s::uuid[], %(pids)s::int[]) as r(id, pid)
),
live_attempts as (
    select a.id, a.job_id, a.dump_requested_at from jobs_attempt a join beat on beat.id = a.server_id where {{is_live(a)}}
),
unlocked_attempts as (
    -- A concurrent report locks attempts in another order, so locked ones are skipped. The report is their sign of life.
    select a.id from jobs_attempt a join live_attempts using (id) join listed_attempts using (id)
     where {{is_live(a)}}
       for no key update of a skip locked
),
alive_attempts as (
    update jobs_attempt a
       set heartbeat_at = clock_timestamp(), alive_observed = {{liveness.heard_now(beat)}}, pid = coalesce(listed_attempts.pid, a.pid)
      from listed_attempts, unlocked_attempts, beat
     where a.id = any(array[listed_attempts.id]) and a.id = unlocked_attempts.id and {{is_live(a)}}
 returning a.id, a.heartbeat_at, listed_attempts.role, listed_attempts.pid
),
taken_attempts as materialized (
    select t.attempt_id as id,
           -- A worker that does not send `stopped` must stop lost attempts before its next heartbeat. Attempts that it
           -- still lists have not stopped.
           case when %(stopped)s::uuid[] is null
                then t.told_observed is not null and t.attempt_id <> all(%(listed)s::uuid[])
                else t.attempt_id = any(%(stopped)s::uuid[]) end as is_confirmed
      from jobs_takenattempt t join beat on beat.id = t.server_id
),
confirmed_stops as (
    delete from jobs_takenattempt t using taken_attempts where t.attempt_id = any(array[taken_attempts.id]) and taken_attempts.is_confirmed
),
freed_slots as (
    delete from jobs_limitslot slot
     where slot.attempt_id = any(array(select taken_attempts.id from taken_attempts where taken_attempts.is_confirmed))
 returning slot.key
),
{{recheck_freed_keys}},
newly_notified as (
    update jobs_takenattempt t set told_observed = {{liveness.heard_now(beat)}}
      from taken_attempts, beat where t.attempt_id = any(array[taken_attempts.id]) and not taken_attempts.is_confirmed and t.told_observed is null
),
-- Attempts of lost transactions, after a promotion or a restore. They run although the database does not know them. No
-- job is claimed until their code has stopped, because each may belong to a waiting job.
unheard_server as materialized (
    select u.server_id from liveness_unheardserver u join beat on beat.id = u.server_id where %(lists_all)s
),
heard_server as (
    delete from liveness_unheardserver u using unheard_server where u.server_id = any(array[unheard_server.server_id])
),
unknown_attempts as (
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun, told_observed)
    select r.id, {{unknown_job}}, beat.id, true, {{liveness.heard_now(beat)}}
      from unheard_server join beat on beat.id = unheard_server.server_id
     cross join unnest(%(running)s::uuid[]) as r(id)
     where not exists (select from jobs_attempt a where a.id = r.id)
        on conflict do nothing
),
attempt_heartbeats as (
    insert into liveness_attemptheartbeat (at, server_id, attempt_id, role, hostname, pid)
    select alive_attempts.heartbeat_at, beat.id, alive_attempts.id, alive_attempts.role, beat.hostname, alive_attempts.pid from alive_attempts, beat
),
-- Check the instances that hold messages of a broker: if they are lost, and if they ever registered. An instance of
-- another token is reported as lost only if that token is no longer valid.
holders as materialized (
    select holder.id, s.id is not null as is_known,
           (s.token_id = beat.token_id or not token_is_good(s.token_id))
           and coalesce({{liveness.running_attempts_move_at(s)}} <= greatest(clock.reading, s.state_changed_observed), false)
               as is_lost
      from beat
     cross join liveness_clock clock
     cross join unnest(%(holders)s::uuid[]) as holder(id)
      left join liveness_server s on s.instance_id = holder.id
)
select beat.state, beat.heartbeat_interval, beat.timeout, beat.termination_grace_period,
       beat.worker_task_restart_strategy, beat.cordoned_by, beat.fence_after,
       beat.drain_deadline, {{liveness.is_in_maintenance(beat)}} as maintenance,
       array(select live_attempts.id from live_attempts
              where (select j.cancel_requested_at from jobs_workerjob j where j.id = live_attempts.job_id) is not null) as cancel,
       array(select listed_attempts.id from listed_attempts where listed_attempts.id not in (select id from live_attempts)
              union
             select taken_attempts.id from taken_attempts where not taken_attempts.is_confirmed) as lost,
       array(select holders.id from holders group by holders.id having bool_and(holders.is_lost)) as forsaken,
       array(select holders.id from holders group by holders.id having not bool_or(holders.is_known)) as unknown,
       array(select j.key from jobs_workerjob j
              where j.owner_id = beat.token_id and j.send_requested_at is not null and %(holders)s::uuid[] is not null
              order by j.id limit 100) as send,
       {{held_queues_of(beat)}} as held_queues,
       beat.tags, beat.max_concurrent,
       array(select live_attempts.id from live_attempts where live_attempts.dump_requested_at is not null) as dump
  from beat

-- prepared statement: record_plain_heartbeats
-- Record heartbeats without news of many servers in one commit. A server gets no row if it is locked, reports a new
-- state, has attempts that were taken from it, or may not send heartbeats. The caller then uses
-- `record_worker_heartbeat` for that server. `offset 0` makes PostgreSQL look up each job by its key, also with poor
-- statistics.
-- takes: servers uuid[], versions int[], states text[], metrics jsonb[], results text[], counts int[]
-- returns: id uuid, token_version int, state text, heartbeat_interval float8, cordoned_by text|null,
--   fence_after float8|null, drain_deadline timestamptz|null, maintenance bool, cancel uuid[], tags text[],
--   max_concurrent int, dump uuid[]
-- row: RecordedPlainHeartbeat
with heartbeats as (
    select plain.*, null::bool as schedulable, '' as reason, false as witness
      from unnest(%(servers)s::uuid[], %(versions)s::int[], %(states)s::text[], %(metrics)s::jsonb[])
           as plain (id, version, state, metrics)
      join liveness_server s using (id)
     where s.token_version = plain.version and s.state in {{MAY_HEARTBEAT}} and s.ended_at is null and coalesce(plain.state, s.state) = s.state
       and (select true from jobs_takenattempt t where t.server_id = s.id limit 1) is null
     order by s.id
       for no key update of s skip locked
),
{{liveness.record_beats}}
select beat.id, beat.token_version, beat.state, beat.heartbeat_interval, beat.cordoned_by, beat.fence_after,
       beat.drain_deadline, {{liveness.is_in_maintenance(beat)}} as maintenance,
       held.cancel, beat.tags, beat.max_concurrent, held.dump
  from beat
 cross join lateral (
       select coalesce(array_agg(a.id) filter (where j.cancel_requested_at is not null), '{}') as cancel,
              coalesce(array_agg(a.id) filter (where a.dump_requested_at is not null), '{}') as dump
         from jobs_attempt a
        cross join lateral (select w.cancel_requested_at from jobs_workerjob w where w.id = a.job_id offset 0) j
        where a.server_id = beat.id and {{is_live(a)}}) held

-- statement: lock_roots_of_held_steps
-- Lock the roots of the executions whose steps a server holds, before `end_forgotten_attempts`.
-- takes: server uuid
-- returns: id uuid
select r.id
  from jobs_execution r
 where r.id in (
       select e.root_id
         from jobs_attempt a
         join jobs_workerjob j on j.id = a.job_id
         join jobs_execution e on e.id = j.execution_id
        where a.server_id = %(server)s and {{is_live(a)}})
 order by r.id
   for no key update

-- statement: end_forgotten_attempts
-- End the attempts of a reactivated server that it does not list. It no longer knows them, so they are lost. Called
-- after `lock_roots_of_held_steps`, in the same round trip.
-- takes: server uuid, listed uuid[], max_resubmissions int
-- returns: state text, job_state text, server text, reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[], attempts uuid[], is_limited bool
-- row: EndedAttempts
with held as materialized (
    select j.id as job_id, a.id, j.state as was, 'LOST' as event, null::jsonb as output,
           jsonb_build_object(
               'code', 'WORKER_CRASHED', 'message', format('the worker %%s came back without this attempt', s.name),
               'server', s.id, 'host', s.hostname, 'pid', a.pid, 'started_at', a.started_at,
               'detected_at', clock_timestamp()) as error,
           format('server %%s was reactivated without this attempt', s.name) as reason, 'liveness' as actor,
           s.id as server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from liveness_server s
      join jobs_attempt a on a.server_id = s.id and {{is_live(a)}}
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
     where s.id = %(server)s and not a.id = any(%(listed)s::uuid[])
       and (a.state = 'CLAIMED' or s.worker_task_restart_strategy <> 'NEVER')
     order by j.id
       for no key update of j
),
{{end_attempts}}
{{count_ended_attempts}}
