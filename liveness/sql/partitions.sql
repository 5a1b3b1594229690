-- statement: list_partitions
-- List the partitions of a table, oldest first. `begins` and `ends` are their bounds. They are null for the default
-- partition, and for a bound that is no time. Names are quoted if they need it.
-- takes: parent text
-- returns: name text, is_default bool, begins timestamptz|null, ends timestamptz|null
-- row: Partition
select leaf.oid::regclass::text as name, bounds.text = 'DEFAULT' as is_default,
       (regexp_match(bounds.text, 'FROM \(''(.+)''\) TO \('))[1]::timestamptz as begins,
       (regexp_match(bounds.text, '\) TO \(''(.+)''\)$'))[1]::timestamptz as ends
  from pg_inherits i
  join pg_class leaf on leaf.oid = i.inhrelid
 cross join lateral (select pg_get_expr(leaf.relpartbound, leaf.oid) as text) bounds
 where i.inhparent = to_regclass(%(parent)s) and not i.inhdetachpending
 order by begins, name

-- statement: list_days_to_come
-- List today and the next days in UTC as bounds of partitions, by the clock of the database.
-- takes: ahead int
-- returns: begins timestamptz, ends timestamptz
-- row: Day
select day at time zone 'UTC' as begins, (day + interval '1 day') at time zone 'UTC' as ends
  from generate_series(0, %(ahead)s) n
 cross join lateral (select date_trunc('day', clock_timestamp() at time zone 'UTC') + n * interval '1 day' as day) days
 order by n

-- statement: count_default_rows
-- Count the rows of each default partition. Counting stops at `most`.
-- takes: most bigint
-- returns: parent text, rows bigint
-- row: DefaultPartition
select 'liveness_heartbeat' as parent, (select count(*) from (select from liveness_heartbeat_default limit %(most)s) r) as rows
 union all
select 'liveness_attemptheartbeat', (select count(*) from (select from liveness_attemptheartbeat_default limit %(most)s) r)
 order by parent
