-- The live attempts of lost servers, a batch: claimed ones at once, running ones when the strategy says so; and of
-- servers that outstay the deadline of their drain.
-- By state, never only "those lost just now": a crash between two statements orphans nothing.
gone as materialized (
    select s.id, s.name, s.hostname, s.state, s.worker_task_restart_strategy, s.last_heartbeat_at,
           {{outstayed}} as outstayed,
           {{liveness.moves_at}} <= greatest(clock.reading, s.state_changed_observed)
               or {{outstayed}} and s.worker_task_restart_strategy <> 'NEVER' as moves
      from liveness_server s, liveness_clock clock
     where ({{liveness.lost_at}} <= greatest(clock.reading, s.state_changed_observed) or {{outstayed}})
       -- One is enough to know, and the planner is not to begin with all of them.
       and (select true from jobs_attempt a where a.server_id = s.id and a.state in {{LIVE}} limit 1)
     order by s.id
       for share of s skip locked
),
-- Their attempts one by one until the batch is full, so that a batch costs what it holds, not what is lost in all.
held as materialized (
    select j.id as job_id, a.id, a.state as was, 'LOST' as event, null::jsonb as output,
           jsonb_build_object(
               'code', 'WORKER_CRASHED',
               'message', format('the worker %%s was lost (%%s)', gone.name, gone.state),
               'server', gone.id, 'host', gone.hostname, 'pid', a.pid,
               'started_at', a.started_at, 'detected_at', j.detected_at) as error,
           case when gone.outstayed then 'drain deadline passed'
                else format('server %%s is %%s', gone.name, gone.state) end as reason, 'liveness' as actor,
           gone.id as server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from gone
      join jobs_attempt a on a.server_id = gone.id and a.state in {{LIVE}}
     cross join lateral (
           select j.id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries, j.available_at,
                  clock_timestamp() as detected_at
             from jobs_workerjob j
            where j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
              and (a.state = 'CLAIMED'
                   or gone.moves
                   or (j.on_worker_lost = 'FAIL' and gone.worker_task_restart_strategy <> 'NEVER'))
              and {{root_held}}
              for no key update skip locked
           ) j
     where %(only)s::uuid[] is null or a.job_id = any(%(only)s)
     limit %(batch)s
)
