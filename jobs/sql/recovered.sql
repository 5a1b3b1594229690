-- Lost servers whose attempts an earlier check has recovered, and only where none is left.
recovered as (
    select s.id from liveness_server s, liveness_clock clock
     where s.state in {{LEAVING}}
       and s.state_changed_tick < clock.tick
       and (case s.worker_task_restart_strategy when 'NEVER' then {{liveness.lost_at}} else {{liveness.moves_at}} end)
           <= clock.last_swept
       and not exists (
           select from jobs_attempt a
            where a.server_id = s.id and a.state in {{LIVE}}
              and not (a.state = 'RUNNING' and s.worker_task_restart_strategy = 'NEVER'))
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
