-- Jobs that stand still until somebody sees to them, and why.
flagged as (
    select j.id,
           case
               when j.unmatched = 'fail' and %(unmatched_after)s::float8 is not null then 'waits_after_loss'
               when j.required_tags in (select tags from hopeless) then 'waits_for_tags'
               else 'refused_by_all'
           end as flag
      from unmatched j
     where j.available_at <= clock_timestamp() and {{waits}}
     union all
    select j.id, 'held_by_lost_server'
      from liveness_server s
     cross join liveness_clock clock
      join jobs_attempt a on a.server_id = s.id and a.state = 'RUNNING'
      join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
     where s.worker_task_restart_strategy = 'NEVER' and s.state not in {{ALIVE}} and {{is_lost}}
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
)
