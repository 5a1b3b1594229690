-- Live attempts without a sign of life for longer than the thresholds, the most silent first, those after a place in
-- this order (null: from the first). It is the order of their last signs of life, so that a page goes on where the one
-- before ended though time has passed. Nothing is changed.
select a.id, a.number, a.state, a.job_id as job, s.id as server, s.name as server_name, s.hostname, a.pid,
       clock.reading - a.alive_observed as silence, a.alive_observed as alive, greatest(a.heartbeat_at, a.started_at, a.claimed_at) as heard_at
{{without_sign}}
   and (%(after)s::uuid is null or (a.alive_observed, a.id) > (%(alive)s::float8, %(after)s::uuid))
 order by a.alive_observed, a.id
 limit %(limit)s
