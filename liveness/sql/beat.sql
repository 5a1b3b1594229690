-- Servers are heard, as they `said`: each one HOT update and a line of history. An ended server moves no clock.
beat as (
    update liveness_server s
       set last_heartbeat_at = clock_timestamp(),
           heard_observed = greatest(s.heard_observed, observed_now()),
           witnessed_at = case when said.witness then clock_timestamp() else s.witnessed_at end,
           metrics = coalesce(said.metrics, s.metrics),
           cordoned_by = case
               when said.schedulable is false then coalesce(s.cordoned_by, 'server')
               when said.schedulable and s.cordoned_by = 'server' then null
               else s.cordoned_by
           end,
           cordon_reason = case
               when said.schedulable is false and coalesce(s.cordoned_by, 'server') = 'server' then said.reason
               when said.schedulable and s.cordoned_by = 'server' then ''
               else s.cordon_reason
           end
      from said
     where s.id = said.id
       and s.token_version = said.version
       and s.state in {{BEATING}}
 returning s.*, {{fence_after}} as fence_after
),
results_counted as (
    -- Of beats before this one; see services/results.py.
    insert into liveness_tally (name, labels, number)
    select 'heartbeats', array[r.result], r.number from unnest(%(results)s::text[], %(counts)s::int[]) as r (result, number)
),
beat_noted as (
    insert into liveness_heartbeat (at, server_id, role)
    select last_heartbeat_at, id, 'server' from beat
)
