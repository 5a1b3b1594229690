-- prepared statement: recover_attempts
-- End a batch of live attempts of lost servers: of all, or of one `server`. Attempts that a server still holds after
-- its drain deadline end too. Claimed attempts end at once. Running attempts end when the restart strategy of the
-- server allows it. Called by the liveness check, by the sweep, and when the end of a server is reported. Several calls
-- may run at once, because locked rows are skipped. Attempts are found by state, not by a list of newly lost servers,
-- so a crash between two statements leaves nothing behind. The statement also counts the seconds from the last
-- heartbeat to the recovery, by the cause of the loss.
-- takes: only uuid[], server uuid, batch bigint, max_resubmissions int
-- returns: state text, job_state text, server text, reason text, jobs bigint, executions uuid[]|null,
--   evaluations uuid[]|null, listed uuid[], attempts uuid[], is_limited bool
-- row: EndedAttempts
with lost_servers as materialized (
    select s.id, s.name, s.hostname, s.state, s.state_reason, s.ended_at is not null as has_ended, s.worker_task_restart_strategy, s.last_heartbeat_at,
           {{outstays_drain(s)}} as outstayed, {{cause_of_recovery(s)}} as cause,
           {{liveness.running_attempts_move_at(s)}} <= greatest(clock.reading, s.state_changed_observed)
               or {{outstays_drain(s)}} and s.worker_task_restart_strategy <> 'NEVER' as moves
      from liveness_server s, liveness_clock clock
     where (s.state not in {{ALIVE}} or s.drain_until_observed is not null)  -- skips nearly all servers early
       and ({{liveness.lost_at(s)}} <= greatest(clock.reading, s.state_changed_observed) or {{outstays_drain(s)}})
       and (%(server)s::uuid is null or s.id = %(server)s)
       -- A scalar subquery with a limit, so that the planner does not begin with all live attempts.
       and (select true from jobs_attempt a where a.server_id = s.id and {{is_live(a)}} limit 1)
     order by s.id
       for share of s skip locked
),
-- Attempts are locked one by one until the batch is full, so the cost grows with the batch, not with all lost attempts.
held as materialized (
    select j.id as job_id, a.id, a.state as was, 'LOST' as event, null::jsonb as output,
           jsonb_build_object(
               'code', 'WORKER_CRASHED',
               'message', format('the worker %%s was lost (%%s)', lost_servers.name, lost_servers.state),
               'server', lost_servers.id, 'host', lost_servers.hostname, 'pid', a.pid,
               'started_at', a.started_at, 'detected_at', j.detected_at) as error,
           case when lost_servers.outstayed then 'drain deadline passed'
                when lost_servers.has_ended then format('server %%s: %%s', lost_servers.name, lost_servers.state_reason)
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
    select lost_servers.cause,
           coalesce(extract(epoch from clock_timestamp() - lost_servers.last_heartbeat_at)::float8, 0) as seconds
      from held join lost_servers on lost_servers.id = held.server_id
),
recovery_tallies as (
    insert into liveness_tally (name, labels, number)
    select 'recovery_seconds', array[cause, {{liveness.histogram_bucket}}], count(*) from recovery_times group by 2
    union all
    select 'recovery_seconds_sum', array[cause], sum(seconds) from recovery_times group by 2
),
{{end_attempts}}
{{count_ended_attempts}}
