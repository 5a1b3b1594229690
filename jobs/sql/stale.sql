-- Live attempts without a sign of life for longer than the thresholds, the most silent first. Nothing is changed.
select a.id, a.number, a.state, a.job_id as job, s.id as server, s.name as server_name, s.hostname, a.pid,
       clock.reading - a.alive_observed as silence, greatest(a.heartbeat_at, a.started_at, a.claimed_at) as heard_at
{{without_sign}}
 order by silence desc
 limit %(limit)s
