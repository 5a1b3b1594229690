-- Heartbeats that say nothing new, of many servers in one commit: one HOT update and a line of history for each. Who is
-- locked just now, says something new or may not beat gets no row, and is heard by itself.
with said as (
    select * from unnest(%(servers)s::uuid[], %(versions)s::int[], %(states)s::text[], %(metrics)s::jsonb[])
           as s (id, version, state, metrics)
),
free as (
    select s.id from liveness_server s join said using (id)
     where s.token_version = said.version and s.state in {{BEATING}} and coalesce(said.state, s.state) = s.state
     order by s.id
       for no key update of s skip locked
),
beat as (
    update liveness_server s
       set last_heartbeat_at = clock_timestamp(),
           heard_observed = greatest(s.heard_observed, observed_now()),
           witnessed_at = clock_timestamp(),
           metrics = coalesce(said.metrics, s.metrics)
      from free, said
     where s.id = free.id and said.id = s.id and s.token_version = said.version and s.state in {{BEATING}}
 returning s.*, {{liveness.fence_after}} as fence_after
),
beat_noted as (
    insert into liveness_heartbeat (at, server_id, role)
    select last_heartbeat_at, id, 'server' from beat
)
select beat.id, beat.token_version, beat.state, beat.heartbeat_interval, beat.cordoned_by, beat.fence_after,
       beat.drain_deadline, (select maintenance_since is not null from liveness_instance) as maintenance,
       array(select a.id from jobs_attempt a join jobs_workerjob j on j.id = a.job_id
              where a.server_id = beat.id and a.state in {{LIVE}} and j.cancel_requested_at is not null) as cancel
  from beat
