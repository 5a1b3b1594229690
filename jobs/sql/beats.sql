-- Heartbeats that say nothing new, of many servers in one commit. Who is locked just now, says something new, is to be
-- told of attempts that were taken from it, or may not beat gets no row, and is heard by itself.
with said as (
    select plain.*, null::bool as schedulable, '' as reason, false as witness
      from unnest(%(servers)s::uuid[], %(versions)s::int[], %(states)s::text[], %(metrics)s::jsonb[])
           as plain (id, version, state, metrics)
      join liveness_server s using (id)
     where s.token_version = plain.version and s.state in {{BEATING}} and coalesce(plain.state, s.state) = s.state
       and (select true from jobs_takenattempt t where t.server_id = s.id limit 1) is null
     order by s.id
       for no key update of s skip locked
),
{{liveness.beat}}
select beat.id, beat.token_version, beat.state, beat.heartbeat_interval, beat.cordoned_by, beat.fence_after,
       beat.drain_deadline, (select maintenance_since is not null from liveness_instance) as maintenance,
       array(select a.id from jobs_attempt a join jobs_workerjob j on j.id = a.job_id
              where a.server_id = beat.id and a.state in {{LIVE}} and j.cancel_requested_at is not null) as cancel
  from beat
