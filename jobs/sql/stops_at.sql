/* the observed time by which the code on server s has stopped, if s is not heard any more: by the fence that its last
   heartbeat was answered, whatever became of it since. Under NEVER there is none: nobody can know more than that it is
   lost */
(case
    when s.worker_task_restart_strategy <> 'NEVER' and s.state = 'TERMINATING' then {{liveness.given_away_at}}
    else s.heard_observed + s.timeout + case s.worker_task_restart_strategy
        when 'AFTER_TERMINATION_GRACE_PERIOD' then s.termination_grace_period else 0 end
end)
