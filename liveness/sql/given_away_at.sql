/* the earliest observed time at which what runs on server s is given to another, if s is not heard any more: the one
   home of that rule. Recovery waits for it, and the fence (fence_after.sql) ends the code before. A server that ended,
   or failed, has stopped its code itself */
(case
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'::float8
    when s.state = 'TERMINATED_GRACEFULLY' or s.state in {{GONE}} then s.state_changed_observed
    when s.worker_task_restart_strategy = 'IMMEDIATELY' then {{silent_at}}
    -- The grace period counts from the state in which it can finish what it holds: from TERMINATING, or from its loss.
    when s.state = 'TERMINATING' then greatest({{silent_at}}, s.state_changed_observed + s.termination_grace_period)
    else {{silent_at}} + s.termination_grace_period
end)
