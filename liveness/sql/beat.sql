-- A server is heard: one HOT update and a line of history. An ended server moves no clock.
beat as (
    update liveness_server s
       set last_heartbeat_at = clock_timestamp(),
           heard_observed = greatest(s.heard_observed, observed_now()),
           witnessed_at = case when %(witness)s then clock_timestamp() else s.witnessed_at end,
           metrics = coalesce(%(metrics)s::jsonb, s.metrics),
           cordoned_by = case
               when %(schedulable)s::bool is false then coalesce(s.cordoned_by, 'server')
               when %(schedulable)s::bool and s.cordoned_by = 'server' then null
               else s.cordoned_by
           end,
           cordon_reason = case
               when %(schedulable)s::bool is false and coalesce(s.cordoned_by, 'server') = 'server' then %(reason)s
               when %(schedulable)s::bool and s.cordoned_by = 'server' then ''
               else s.cordon_reason
           end
     where s.id = %(server)s
       and s.token_version = %(version)s
       and s.state in {{BEATING}}
 returning s.*, {{fence_after}} as fence_after
),
beat_noted as (
    insert into liveness_heartbeat (at, server_id, role)
    select last_heartbeat_at, id, 'server' from beat
)
