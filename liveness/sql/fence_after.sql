/* seconds unheard after which server s stops its jobs' code by itself, 20 per cent of its timeout before the earliest
   moment at which they could be given away (null: never) */
(case s.worker_task_restart_strategy
    when 'NEVER' then null
    when 'IMMEDIATELY' then s.timeout * 0.8
    else s.timeout * 0.8 + s.termination_grace_period
end)
