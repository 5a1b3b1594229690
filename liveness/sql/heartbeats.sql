-- step: record_beats(heartbeats) -> beat
-- Record heartbeats: one HOT update and one row of history for each server. Servers that have ended are not updated.
beat as (
    update liveness_server s
       set last_heartbeat_at = clock_timestamp(),
           heard_observed = {{heard_now(s)}},
           witnessed_at = case when heartbeats.witness then clock_timestamp() else s.witnessed_at end,
           metrics = coalesce(heartbeats.metrics, s.metrics),
           cordoned_by = case
               when heartbeats.schedulable is false then coalesce(s.cordoned_by, 'server')
               when heartbeats.schedulable and s.cordoned_by = 'server' then null
               else s.cordoned_by
           end,
           cordon_reason = case
               when heartbeats.schedulable is false and coalesce(s.cordoned_by, 'server') = 'server' then heartbeats.reason
               when heartbeats.schedulable and s.cordoned_by = 'server' then ''
               else s.cordon_reason
           end
      from heartbeats
     where s.id = any(array[heartbeats.id])
       and s.token_version = heartbeats.version
       and s.state in {{MAY_HEARTBEAT}} and s.ended_at is null
 returning s.*, {{fence_after(s)}} as fence_after,
           {{cpu_percent(heartbeats)}} as cpu_percent, {{memory_percent(heartbeats)}} as memory_percent
),
counted_results as (
    -- Results of earlier heartbeats; see services/results.py.
    insert into liveness_tally (name, labels, number)
    select 'heartbeats', array[r.result], r.number from unnest(%(results)s::text[], %(counts)s::int[]) as r (result, number)
),
server_heartbeats as (
    insert into liveness_heartbeat (at, server_id, cpu_percent, memory_percent)
    select last_heartbeat_at, id, cpu_percent, memory_percent from beat
)

-- step: new_cordon_event(beat) -> new_cordon_event
-- Write the event if a server cordons itself or lifts its own cordon. The statement still sees the cordon before the
-- heartbeat. If a server does this too often, no event is written for a while, but the cordon still applies.
new_cordon_event as (
    insert into liveness_serverevent
           (subject_type, subject_id, subject_name, server_id, server_name, from_state, to_state, action, actor, reason)
    select 'server', beat.id::text, beat.name, beat.id, beat.name, beat.state, beat.state,
           case when beat.cordoned_by is null then 'uncordon' else 'cordon' end, 'server',
           case when own.events = {{OWN_EVENTS_LIMIT}} - 1
                then concat_ws('; ', nullif(%(reason)s, ''), 'more changes within the hour are not recorded')
                else %(reason)s end
      from beat
     cross join lateral (select s.cordoned_by from liveness_server s where s.id = beat.id offset 0) before
     cross join lateral (select {{own_events(beat)}} as events) own
     where %(schedulable)s::bool is not null
       and (before.cordoned_by is null and beat.cordoned_by = 'server'
            or before.cordoned_by = 'server' and beat.cordoned_by is null)
       and own.events < {{OWN_EVENTS_LIMIT}}
)

-- step: beat_of_one_server -> heartbeats
-- Return the heartbeat of one server as a row.
heartbeats as (
    select %(server)s::uuid as id, %(version)s::int as version, %(metrics)s::jsonb as metrics,
           %(schedulable)s::bool as schedulable, %(reason)s::text as reason, %(witness)s::bool as witness
)

-- statement: record_server_heartbeat
-- Record the heartbeat of a server without attempts.
-- takes: server uuid, version int, metrics jsonb, schedulable bool, reason text, witness bool, results text[],
--   counts int[]
-- returns: state text, heartbeat_interval float8, cordoned_by text|null, fence_after float8|null,
--   drain_deadline timestamptz|null
-- row: HeardServer
with {{beat_of_one_server}},
{{record_beats}},
{{new_cordon_event}}
select beat.state, beat.heartbeat_interval, beat.cordoned_by, beat.fence_after, beat.drain_deadline from beat

-- statement: read_ended_server
-- Read the response for a server that has ended, without an update. Its fence is 0, because its code has stopped.
-- takes: server uuid
-- returns: state text, heartbeat_interval float8, cordoned_by text|null, fence_after float8|null,
--   drain_deadline timestamptz|null
-- row: HeardServer
select s.state, s.heartbeat_interval, s.cordoned_by, 0::float8 as fence_after, s.drain_deadline
  from liveness_server s
 where s.id = %(server)s

-- statement: read_fence
-- Read the fence of a server in its new state: the seconds that its code may run without an answered heartbeat.
-- takes: server uuid
-- returns: fence_after float8|null
select {{fence_after(s)}} as fence_after from liveness_server s where s.id = %(server)s

-- statement: count_own_events
-- Count the events that a server caused itself within the last hour, up to the limit.
-- takes: server uuid
-- returns: events bigint
select {{own_events(s)}} as events from liveness_server s where s.id = %(server)s

-- statement: read_heartbeat_age
-- Read the seconds since the last heartbeat of a server, by the database's clock. Null if it never sent one.
-- takes: server uuid
-- returns: age float8|null
-- row: HeartbeatAge
select extract(epoch from clock_timestamp() - s.last_heartbeat_at)::float8 as age
  from liveness_server s where s.id = %(server)s
