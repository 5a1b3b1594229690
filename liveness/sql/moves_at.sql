/* when the running attempts of lost server s are given away */
(case
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'
    when s.worker_task_restart_strategy = 'IMMEDIATELY' or s.type <> 'WORKER' then {{lost_at}}
    when s.state = 'TERMINATED_GRACEFULLY' or s.state in {{GONE}} then {{lost_at}}
    else greatest({{lost_at}}, s.state_changed_at + make_interval(secs => s.termination_grace_period))
end)
