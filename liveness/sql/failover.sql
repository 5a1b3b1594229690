-- step: present_timeline -> present_timeline
-- Read which PostgreSQL this is, and the end of its write-ahead log. A standby has no row.
-- The timeline is part of a file name, because the control file shows a new one only after the next checkpoint.
present_timeline as materialized (
    select (select system_identifier::text from pg_control_system()) as system_identifier,
           ('x' || left(pg_walfile_name(primary_server.position), 8))::bit(32)::int as timeline,
           (primary_server.position - '0/0')::bigint as position
      from (select pg_current_wal_flush_lsn() as position where not pg_is_in_recovery()) primary_server
)

-- statement: compare_timeline
-- Compare the database with the timeline that the control plane has used. This runs on each new connection and at each
-- check. It writes nothing.
-- returns: system_identifier text, timeline int, position bigint, known bool, same_server bool
with {{present_timeline}},
latest as (select * from liveness_databasetimeline order by id desc limit 1)
select present_timeline.system_identifier, present_timeline.timeline, present_timeline.position,
       coalesce((latest.system_identifier, latest.timeline)
                = (present_timeline.system_identifier, present_timeline.timeline), false) as known,
       coalesce(latest.compared_with_server = pg_postmaster_start_time(), false) as same_server
  from present_timeline left join latest on true

-- statement: lock_timelines
-- Lock the timelines before `note_timeline`, so that only one process records a new timeline.
-- returns: id int
select i.id::int from liveness_instance i for no key update

-- statement: note_timeline
-- Record that the database is on another timeline than before, or that it has lost `lost_bytes` of its log. Then no job
-- is claimed until `raise_attempt_counts` has run and each worker has listed what it runs. After an ordinary restart of
-- PostgreSQL only the comparison is recorded. This runs after `lock_timelines`, in the same round trip.
-- takes: lost_bytes bigint
-- returns: id bigint, timeline int, former int|null, workers bigint, last_change_at timestamptz|null
-- row: NotedTimeline
with {{present_timeline}},
latest as materialized (select * from liveness_databasetimeline order by id desc limit 1),
new_timeline as (
    insert into liveness_databasetimeline (
        system_identifier, timeline, began_with_server, compared_with_server, last_change_at, lost_bytes, raised_at)
    select present_timeline.system_identifier, present_timeline.timeline, pg_postmaster_start_time(),
           pg_postmaster_start_time(),
           case when latest.id is not null then (
               select greatest(clock.advanced_at, (select max(s.last_heartbeat_at) from liveness_server s))
                 from liveness_clock clock) end,
           %(lost_bytes)s::bigint, case when latest.id is null then clock_timestamp() end
      from present_timeline left join latest on true
     where latest.id is null
        or (latest.system_identifier, latest.timeline) <> (present_timeline.system_identifier, present_timeline.timeline)
        or %(lost_bytes)s::bigint is not null and latest.began_with_server <> pg_postmaster_start_time()
 returning id, timeline, last_change_at, raised_at
),
compared_timeline as (
    update liveness_databasetimeline t set compared_with_server = pg_postmaster_start_time()
      from latest where t.id = any(array[latest.id]) and not exists (select from new_timeline)
),
unheard_servers as (
    insert into liveness_unheardserver (server_id, since_observed)
    select s.id, greatest(s.heard_observed, observed_now()) from liveness_server s, new_timeline
     where new_timeline.raised_at is null and s.type = 'WORKER' and s.state not in {{STOPPED}} and not {{has_ended(s)}}
        on conflict (server_id) do update set since_observed = excluded.since_observed
 returning server_id
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_name, action, actor, reason)
    select 'instance', 'database', 'new_timeline', 'liveness',
           format('timeline %%s after %%s: changes after %%s may be lost', new_timeline.timeline, latest.timeline,
                  to_char(new_timeline.last_change_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
           || coalesce(format('; at least %%s bytes of the log are', %(lost_bytes)s::bigint), '')
      from new_timeline, latest
)
select new_timeline.id, new_timeline.timeline, latest.timeline as former,
       (select count(*) from unheard_servers) as workers, new_timeline.last_change_at
  from new_timeline left join latest on true

-- statement: forget_unheard_servers
-- Wait no longer for workers that have listed what they run, or that cannot run anything any more. Each check runs
-- this. A worker lists its running attempts every `runner_interval` seconds. If it sends heartbeats for longer than
-- that and lists none, it has none. Claims do not wait for a worker that is silent for its timeout.
-- takes: runner_interval float8
-- returns: workers bigint
with forgotten as (
    delete from liveness_unheardserver u
     using liveness_clock clock
     where not exists (
           select from liveness_server s
            where s.id = u.server_id and s.state not in {{STOPPED}} and not {{has_ended(s)}}
              and s.heard_observed < u.since_observed + %(runner_interval)s
              and s.heard_observed + s.timeout > clock.reading)
 returning u.server_id
)
select count(*) as workers from forgotten
