/* the observed time at which server s was lost (null: it is not in a state that can be): at once when it says so
   itself, a TERMINATING one when it falls silent for its timeout, or outstays grace + timeout though it beats */
(case
    when s.state in {{ALIVE}} then null
    when s.state = 'TERMINATING' then least(
        s.heard_observed + s.timeout, s.state_changed_observed + s.termination_grace_period + s.timeout)
    else s.state_changed_observed
end)
