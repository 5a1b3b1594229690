/* when the running attempts of server s are given away (null: it is not lost; greatest() would overlook that) */
(case
    when s.state in {{ALIVE}} then null
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'
    when s.worker_task_restart_strategy = 'IMMEDIATELY' or s.type <> 'WORKER' then {{lost_at}}
    when s.state = 'TERMINATED_GRACEFULLY' or s.state in {{GONE}} then {{lost_at}}
    else greatest({{lost_at}}, s.state_changed_at + make_interval(secs => s.termination_grace_period))
end)
