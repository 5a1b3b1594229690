-- Lost servers become NOT_RUNNING in the check after their attempts were recovered, and only where none is left.
with due as (
    select s.id from liveness_server s, liveness_clock clock
     where s.state not in {{GONE}}
       and (case s.worker_task_restart_strategy when 'NEVER' then {{liveness.lost_at}} else {{liveness.moves_at}} end)
           < clock.last_swept_at
       and not exists (
           select from jobs_attempt a
            where a.server_id = s.id and a.state in {{LIVE}}
              and not (a.state = 'RUNNING' and s.worker_task_restart_strategy = 'NEVER'))
     order by s.id
       for no key update of s skip locked
)
update liveness_server s
   set state = 'NOT_RUNNING', state_changed_at = clock_timestamp(), state_actor = 'liveness',
       state_reason = 'lost while ' || s.state || ', nothing left to recover'
  from due
 where s.id = due.id
returning s.id, s.name, s.state_reason as reason
