/* the observed time at which server s gets worse next (null: it does not) */
(case
    when s.state = 'INACTIVE' then null
    when s.state not in {{ALIVE}} then s.state_changed_observed + s.termination_grace_period
    when s.late then s.heard_observed + s.timeout
end)
