/* the observed time at which server s is lost, if it is not heard any more. A DISCONNECTED one may not know yet: no
   operator's word is quicker than silence */
(case
    when s.state in {{ALIVE}} then s.heard_observed + s.timeout
    when s.state = 'DISCONNECTED' then greatest(s.state_changed_observed, s.heard_observed + s.timeout)
    else {{lost_at}}
end)
