/* alive server s is silent for longer than its timeout, and not new: by the reading of the check alone */
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed > s.timeout
 and clock.reading - s.created_observed >= %(initial_delay)s)
