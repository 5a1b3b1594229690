/* server s may be given work */
(s.type = 'WORKER' and s.state = 'RUNNING' and s.cordoned_by is null and s.drain_deadline is null
 and (select maintenance_since is null from liveness_instance)
 and {{heard}})
