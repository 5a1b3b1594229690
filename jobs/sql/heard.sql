/* server s was heard in time to be given work: exactly at the limit is stale, and no heartbeat yet is stale */
(s.last_heartbeat_at is not null
 and observed_now() - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s)
