/* seconds unheard after which server s stops its jobs' code by itself, 20 per cent of its timeout before the earliest
   moment at which they could be given away (null: never). The grace period of a TERMINATING one is running already */
(case
    when s.worker_task_restart_strategy = 'NEVER' then null
    when s.worker_task_restart_strategy = 'IMMEDIATELY' then s.timeout * 0.8
    when s.state = 'TERMINATING' then greatest(
        s.timeout * 0.8,
        s.state_changed_observed + s.termination_grace_period - observed_now() - s.timeout * 0.2)
    else s.timeout * 0.8 + s.termination_grace_period
end)
