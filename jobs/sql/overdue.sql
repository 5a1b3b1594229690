-- Live attempts whose time is over though nobody lost their server; the first cause counts. A threshold that is null
-- is not looked at. An operator's own sweep (by_hand) asks for no strategy.
-- Both rows are locked and judged again: a heartbeat or a completion that came between the search and the write wins.
held as materialized (
    select j.id as job_id, a.id, j.state as was, cause.event, null::jsonb as output,
           jsonb_build_object(
               'code', cause.code, 'message', cause.message, 'server', s.id, 'host', s.hostname, 'pid', a.pid,
               'threshold', cause.threshold, 'started_at', a.started_at, 'detected_at', clock_timestamp()) as error,
           cause.message as reason, %(actor)s as actor, s.id as server_id, j.cancel_requested_at, j.on_worker_lost,
           j.resubmissions, j.retries, j.available_at
      from jobs_attempt a
      join liveness_server s on s.id = a.server_id
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
     cross join liveness_clock clock
     cross join lateral (
        select 'LOST' as event, 'CANCEL_TIMEOUT' as code, 'the worker did not confirm the cancellation' as message,
               %(cancel_timeout)s::float8 as threshold
         where j.cancel_requested_observed + %(cancel_timeout)s::float8 <= clock.reading
        union all
        -- A quarter of the server's timeout later than the worker itself: a completion may be on its way.
        select 'FAILED', 'STEP_TIMEOUT', format('exceeded its timeout of %%s s', j.timeout_seconds), j.timeout_seconds
         where %(timeouts)s and a.state = 'RUNNING'
           and a.started_observed + j.timeout_seconds + s.timeout / 4 <= clock.reading
           and (not {{is_lost}} or s.worker_task_restart_strategy = 'NEVER')
        union all
        select 'LOST', 'CLAIM_STALE', 'no sign of life of the claim', %(claimed_stale_after)s::float8
         where a.state = 'CLAIMED' and clock.reading - a.alive_observed > %(claimed_stale_after)s::float8
        union all
        select case when %(by_hand)s then 'ENDED' else 'LOST' end, 'WORKER_CRASHED', 'no sign of life of the code',
               %(running_stale_after)s::float8
         where a.state = 'RUNNING'
           -- Of a silent server nothing else is heard either, and that is the liveness check's business alone: the code
           -- is stale when its server was heard since, for so long. By hand is as the operator says.
           and case when %(by_hand)s then clock.reading else s.heard_observed end - a.alive_observed
               > %(running_stale_after)s::float8
           and (%(by_hand)s or not {{is_lost}} and s.worker_task_restart_strategy <> 'NEVER')
         limit 1
     ) cause
     where a.state in {{LIVE}}
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
       -- Of those alone that have a cause: a condition on the job alone would be judged first, of every live one.
       and case when cause.event is null then false else {{root_held}} end
     order by j.id
     limit %(batch)s
       for no key update of j, a skip locked
)
