-- statement: list_facets
-- List the values that alive servers of some namespaces (null: of all) can be filtered by.
-- takes: namespaces text[]
-- returns: versions jsonb, tags text[], namespaces text[]
-- row: ServerFacets
with alive_servers as materialized (
    select s.cluster, s.type, s.version, s.tags from liveness_server s
     where s.state in {{ALIVE}} and (%(namespaces)s::text[] is null or s.namespace = any(%(namespaces)s))
)
select (select coalesce(jsonb_agg(to_jsonb(counted)), '[]')
          from (select cluster, type, version, count(*) from alive_servers group by 1, 2, 3 order by 1, 2, 3) counted) as versions,
       array(select distinct unnest(tags) as tag from alive_servers order by tag limit 200) as tags,
       array(select distinct t.namespace from liveness_apitoken t
              where %(namespaces)s::text[] is null or t.namespace = any(%(namespaces)s) order by t.namespace) as namespaces

-- statement: list_rows_left_out
-- Read the rule `rows_left_out`.
-- returns: rows_left_out jsonb|null
select {{rows_left_out}} as rows_left_out

-- statement: list_maintenances
-- Read the rule `maintenances`.
-- returns: maintenances jsonb|null
select {{maintenances}} as maintenances

-- statement: read_events_horizon
-- Return the time up to which events are complete: no open transaction wrote an event before it. The time is read
-- before the locks, because a transaction may begin to write in between. Ids are assigned in the order of time. A later
-- statement that reads all events up to this time therefore misses no event with a lower id.
-- returns: at timestamptz
with moment as materialized (
    select clock_timestamp() as at
)
select least(moment.at,
             -- If the start of a transaction is not visible (other roles, prepared transactions), assume the earliest.
             (select min(coalesce(activity.xact_start, to_timestamp(0)))
                from pg_locks held
                left join pg_stat_activity activity on activity.pid = held.pid
               where held.relation = 'liveness_serverevent'::regclass and held.mode = 'RowExclusiveLock'
                 and held.pid is distinct from pg_backend_pid()
                 and held.database = (select oid from pg_database where datname = current_database()))) as at
  from moment

-- statement: list_own_outages
-- List the periods longer than `least` seconds without a heartbeat of the control plane's own processes. Heartbeats
-- could not arrive in such a period, so the silence of a worker proves nothing.
-- takes: own_digest bytea, since timestamptz, until timestamptz, least float8
-- returns: began timestamptz, ended timestamptz
-- row: OwnOutage
with own_servers as materialized (
    select s.id from liveness_server s
     where s.type <> 'WORKER' and {{is_own(s)}} and s.witnessed_at is not null
       and s.last_heartbeat_at >= %(since)s and s.created_at <= %(until)s
),
own_beats as (
    select beat.at, lag(beat.at) over (order by beat.at) as previous
      from own_servers
     cross join lateral (
           select h.at from liveness_heartbeat h
            where h.server_id = own_servers.id and h.at between %(since)s and %(until)s) beat
)
select previous as began, at as ended from own_beats
 where at - previous > make_interval(secs => %(least)s)
 order by previous

-- statement: list_beats_with_outages
-- List the last heartbeats of a server, latest first (`ended` is null), and the outages of `list_own_outages` in the same
-- period. Outages are searched only if two heartbeats are more than `usual` seconds apart.
-- takes: own_digest bytea, server uuid, shown bigint, usual float8, least float8
-- returns: began timestamptz, ended timestamptz|null
-- row: BeatOrOutage
with server_beats as materialized (
    select h.at, lag(h.at) over (order by h.at desc) as next
      from (select h.at from liveness_heartbeat h
             where h.server_id = %(server)s order by h.at desc limit %(shown)s) h
),
period as materialized (
    select min(at) - interval '30 seconds' as since, max(at) + interval '30 seconds' as until from server_beats
    having bool_or(next - at > make_interval(secs => %(usual)s))
),
own_servers as materialized (
    select s.id from period
      join liveness_server s on s.last_heartbeat_at >= period.since and s.created_at <= period.until
     where s.type <> 'WORKER' and {{is_own(s)}} and s.witnessed_at is not null
),
own_beats as (
    select beat.at, lag(beat.at) over (order by beat.at) as previous
      from own_servers cross join period
     cross join lateral (
           select h.at from liveness_heartbeat h
            where h.server_id = own_servers.id and h.at between period.since and period.until) beat
)
select at as began, null::timestamptz as ended from server_beats
 union all
select previous, at from own_beats where at - previous > make_interval(secs => %(least)s)
 order by began desc
