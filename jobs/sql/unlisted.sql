-- The attempts of a reactivated server that it does not list: it has forgotten them, so they are lost.
with held as materialized (
    select j.id as job_id, a.id, j.state as was, 'LOST' as event, null::jsonb as output,
           jsonb_build_object(
               'code', 'WORKER_CRASHED', 'message', format('the worker %%s came back without it', s.name),
               'server', s.id, 'host', s.hostname, 'pid', a.pid, 'started_at', a.started_at,
               'detected_at', clock_timestamp()) as error,
           format('server %%s was reactivated without it', s.name) as reason, 'liveness' as actor,
           s.id as server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from liveness_server s
      join jobs_attempt a on a.server_id = s.id and a.state in {{LIVE}}
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id and j.state = a.state
     where s.id = %(server)s and not a.id = any(%(listed)s::uuid[])
       and (a.state = 'CLAIMED' or s.worker_task_restart_strategy <> 'NEVER')
     order by j.id
       for no key update of j
),
{{settle}}
{{counted}}
