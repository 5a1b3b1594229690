/* server s may be given work: exactly at the limit of freshness is stale, and no heartbeat yet is stale */
(s.type = 'WORKER' and s.state = 'RUNNING' and s.cordoned_by is null and s.drain_deadline is null
 and (select maintenance_since is null from liveness_instance)
 and s.last_heartbeat_at > clock_timestamp()
     - make_interval(secs => s.heartbeat_interval * %(staleness_multiplier)s))
