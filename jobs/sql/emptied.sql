/* lost server s holds nothing that is still to be recovered */
(s.state in {{LEAVING}}
 and {{liveness.lost_at}} <= clock.reading
 and not exists (
     select from jobs_attempt a
      where a.server_id = s.id and a.state in {{LIVE}}
        and not (a.state = 'RUNNING' and s.worker_task_restart_strategy = 'NEVER')))
