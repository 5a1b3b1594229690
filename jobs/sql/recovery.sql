-- statement: recover_attempts
-- Recover the live attempts of lost servers, and count how long after its server's last heartbeat each is recovered.
-- The live attempts of lost servers, a batch: claimed ones at once, running ones when the strategy says so; and of
-- servers that outstay the deadline of their drain.
-- By state, never only "those lost just now": a crash between two statements orphans nothing.
-- takes: only uuid[], batch bigint, max_resubmissions int
-- returns: state text, job_state text, server text, reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[], attempts uuid[]
-- row: EndedAttempts
with lost_servers as materialized (
    select s.id, s.name, s.hostname, s.state, s.worker_task_restart_strategy, s.last_heartbeat_at,
           {{outstays_drain(s)}} as outstayed,
           {{liveness.running_attempts_move_at(s)}} <= greatest(clock.reading, s.state_changed_observed)
               or {{outstays_drain(s)}} and s.worker_task_restart_strategy <> 'NEVER' as moves
      from liveness_server s, liveness_clock clock
     where (s.state not in {{ALIVE}} or s.drain_until_observed is not null)  -- all others are not even looked at
       and ({{liveness.lost_at(s)}} <= greatest(clock.reading, s.state_changed_observed) or {{outstays_drain(s)}})
       -- One is enough to know, and the planner is not to begin with all of them.
       and (select true from jobs_attempt a where a.server_id = s.id and {{is_live(a)}} limit 1)
     order by s.id
       for share of s skip locked
),
-- Their attempts one by one until the batch is full, so that a batch costs what it holds, not what is lost in all.
held as materialized (
    select j.id as job_id, a.id, a.state as was, 'LOST' as event, null::jsonb as output,
           jsonb_build_object(
               'code', 'WORKER_CRASHED',
               'message', format('the worker %%s was lost (%%s)', lost_servers.name, lost_servers.state),
               'server', lost_servers.id, 'host', lost_servers.hostname, 'pid', a.pid,
               'started_at', a.started_at, 'detected_at', j.detected_at) as error,
           case when lost_servers.outstayed then 'drain deadline passed'
                else format('server %%s is %%s', lost_servers.name, lost_servers.state) end as reason, 'liveness' as actor,
           lost_servers.id as server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from lost_servers
      join jobs_attempt a on a.server_id = lost_servers.id and {{is_live(a)}}
     cross join lateral (
           select j.id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries, j.available_at,
                  clock_timestamp() as detected_at
             from jobs_workerjob j
            where j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
              and (a.state = 'CLAIMED'
                   or lost_servers.moves
                   or (j.on_worker_lost = 'FAIL' and lost_servers.worker_task_restart_strategy <> 'NEVER'))
              and {{root_is_locked(j)}}
              for no key update skip locked
           ) j
     where %(only)s::uuid[] is null or a.job_id = any(%(only)s)
     limit %(batch)s
),
-- due: select job_id as id from held
recovery_times as (
    select coalesce(extract(epoch from clock_timestamp() - lost_servers.last_heartbeat_at)::float8, 0) as seconds
      from held join lost_servers on lost_servers.id = held.server_id
),
recovery_tallies as (
    insert into liveness_tally (name, labels, number)
    select 'recovery_seconds', array[{{liveness.histogram_bucket}}], count(*) from recovery_times group by 2
    union all
    select 'recovery_seconds_sum', '{}', sum(seconds) from recovery_times having count(*) > 0
),
{{end_attempts}}
{{count_verdicts}}
