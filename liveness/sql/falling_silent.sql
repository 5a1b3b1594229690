/* alive server s was not heard in time by the reading of the check, and would be disconnected within one timeout */
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed
     >= least(s.heartbeat_interval * %(staleness_multiplier)s, s.timeout - s.heartbeat_interval)
 and {{overdue_at}} <= clock.reading + s.timeout)
