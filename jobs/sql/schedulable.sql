/* server s may be given work: exactly at the limit of freshness is stale, and no heartbeat yet is stale */
(s.type = 'WORKER' and s.state = 'RUNNING' and s.cordoned_by is null and s.drain_deadline is null
 and (select maintenance_since is null from liveness_instance)
 and s.last_heartbeat_at is not null
 and observed_now() - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s)
