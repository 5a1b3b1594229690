/* the observed time by which the code on server s has stopped, if s is not heard any more: it fences itself before
   given_away_at. One that was found dead while it held nothing may still be within the fence that it was told; and
   under NEVER there is none: nobody can know more than that it is lost */
(case
    when s.worker_task_restart_strategy = 'NEVER' then {{liveness.silent_at}}
    when s.state in {{GONE}} then s.heard_observed + s.timeout + case s.worker_task_restart_strategy
        when 'AFTER_TERMINATION_GRACE_PERIOD' then s.termination_grace_period else 0 end
    else {{liveness.given_away_at}}
end)
