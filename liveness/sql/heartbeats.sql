-- step: record_beats(heartbeats) -> beat
-- Servers are heard, as they `heartbeats`: each one HOT update and a line of history. An ended server moves no clock.
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
       and s.state in {{MAY_HEARTBEAT}}
 returning s.*, {{fence_after(s)}} as fence_after
),
counted_results as (
    -- Of beats before this one; see services/results.py.
    insert into liveness_tally (name, labels, number)
    select 'heartbeats', array[r.result], r.number from unnest(%(results)s::text[], %(counts)s::int[]) as r (result, number)
),
server_heartbeats as (
    insert into liveness_heartbeat (at, server_id, role)
    select last_heartbeat_at, id, 'server' from beat
)

-- step: new_cordon_event(beat) -> new_cordon_event
-- That a server has cordoned itself, or lifts that; as it was before its beat this statement sees it still.
new_cordon_event as (
    insert into liveness_serverevent
           (subject_type, subject_id, subject_name, server_id, server_name, from_state, to_state, action, actor, reason)
    select 'server', beat.id::text, beat.name, beat.id, beat.name, beat.state, beat.state,
           case when beat.cordoned_by is null then 'uncordon' else 'cordon' end, 'server', %(reason)s
      from beat
     cross join lateral (select s.cordoned_by from liveness_server s where s.id = beat.id offset 0) before
     where %(schedulable)s::bool is not null
       and (before.cordoned_by is null and beat.cordoned_by = 'server'
            or before.cordoned_by = 'server' and beat.cordoned_by is null)
)

-- step: beat_of_one_server -> heartbeats
-- What one server says of itself.
heartbeats as (
    select %(server)s::uuid as id, %(version)s::int as version, %(metrics)s::jsonb as metrics,
           %(schedulable)s::bool as schedulable, %(reason)s::text as reason, %(witness)s::bool as witness
)

-- statement: record_server_heartbeat
-- The heartbeat of a server that has no attempts to speak of.
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
-- What a server that ended is answered: it moves no clock, and what ran on it has stopped.
-- takes: server uuid
-- returns: state text, heartbeat_interval float8, cordoned_by text|null, fence_after float8|null,
--   drain_deadline timestamptz|null
-- row: HeardServer
select s.state, s.heartbeat_interval, s.cordoned_by, 0::float8 as fence_after, s.drain_deadline
  from liveness_server s
 where s.id = %(server)s

-- statement: read_fence
-- For how long server may go on unheard, in the state that its heartbeat has just taken it to.
-- takes: server uuid
-- returns: fence_after float8|null
select {{fence_after(s)}} as fence_after from liveness_server s where s.id = %(server)s
