/* the observed time at which alive server s is DISCONNECTED, unless it is heard */
greatest(s.heard_observed + s.timeout, s.created_observed + %(initial_delay)s)
