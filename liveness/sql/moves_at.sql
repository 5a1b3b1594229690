/* the observed time at which the running attempts of server s are given away (null: it is not lost; greatest() would
   overlook that). A DISCONNECTED one may not know yet and fence itself: an operator's word is no quicker than that */
(case
    when s.state in {{ALIVE}} then null
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'::float8
    when s.type <> 'WORKER' or s.state = 'TERMINATED_GRACEFULLY' or s.state in {{GONE}} then {{lost_at}}
    else greatest(
        {{lost_at}},
        case when s.worker_task_restart_strategy = 'AFTER_TERMINATION_GRACE_PERIOD'
             then s.state_changed_observed + s.termination_grace_period end,
        case when s.state = 'DISCONNECTED' then s.heard_observed + {{fence_after}} end)
end)
