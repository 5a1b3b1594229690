-- statement: list_facets
-- What alive servers of some namespaces (null: of all) can be told apart by. Nothing is changed.
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
       array(select distinct t.namespace from liveness_apitoken t order by t.namespace) as namespaces

-- statement: list_rows_left_out
-- The same by itself.
-- returns: rows_left_out jsonb|null
select {{rows_left_out}} as rows_left_out

-- statement: list_maintenances
-- The same by itself.
-- returns: maintenances jsonb|null
select {{maintenances}} as maintenances

-- statement: read_events_horizon
-- To when events are complete: whoever may still commit some wrote none before. The moment is read before the locks are
-- looked at: who begins to write in between is not seen. Numbers are drawn in the order of time, so no event of a lower
-- number is to come when all up to one of that time are read in a statement after this one.
-- returns: at timestamptz
with moment as materialized (
    select clock_timestamp() as at
)
select least(moment.at,
             -- Of whom we may not see when they began, or who wait for their second phase: since ever.
             (select min(coalesce(activity.xact_start, to_timestamp(0)))
                from pg_locks held
                left join pg_stat_activity activity on activity.pid = held.pid
               where held.relation = 'liveness_serverevent'::regclass and held.mode = 'RowExclusiveLock'
                 and held.pid is distinct from pg_backend_pid()
                 and held.database = (select oid from pg_database where datname = current_database()))) as at
  from moment
