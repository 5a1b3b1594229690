-- statement: read_retention_limits
-- Return the moments before which rows are past their retention (in seconds; null: keep all), from one reading of the
-- clock.
-- takes: jobs float8, executions float8, servers float8, events float8, server_heartbeats float8,
--   attempt_heartbeats float8, batches float8, signals float8
-- returns: jobs timestamptz|null, executions timestamptz|null, servers timestamptz|null, events timestamptz|null,
--   server_heartbeats timestamptz|null, attempt_heartbeats timestamptz|null, batches timestamptz|null,
--   signals timestamptz|null
-- row: RetentionLimits
with clock as materialized (
    -- Jobs that the history has not counted yet are kept for up to an hour more.
    select now, greatest(coalesce((select closed_until from jobs_historywatermark), now), now - interval '1 hour') as counted
      from (select clock_timestamp() as now) clock
)
select least(now - make_interval(secs => %(jobs)s), case when %(jobs)s is not null then counted end) as jobs,
       least(now - make_interval(secs => %(executions)s), case when %(executions)s is not null then counted end) as executions,
       now - make_interval(secs => %(servers)s) as servers,
       now - make_interval(secs => %(events)s) as events,
       now - make_interval(secs => %(server_heartbeats)s) as server_heartbeats,
       now - make_interval(secs => %(attempt_heartbeats)s) as attempt_heartbeats,
       now - make_interval(secs => %(batches)s) as batches,
       now - make_interval(secs => %(signals)s) as signals
  from clock

-- statement: scan_jobs
-- Scan the next jobs by id: count those past their retention. `has_old` is false when the scan may stop, because none of
-- these jobs was created before the limit. Steps are deleted with their executions.
-- takes: jobs timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(j.id order by j.id desc))[1] as last,
       count(*) filter (where {{single_job_is_past_retention(j)}}) as due,
       bool_or(j.created_at < %(jobs)s) as has_old
  from (select id, created_at, finished_at, execution_id from jobs_workerjob where id > %(after)s order by id limit %(batch)s) j

-- statement: lock_old_jobs
-- Lock the jobs between two ids that are past their retention, so that no row can refer to them any more. Only ended
-- jobs have a `finished_at`. Jobs that are locked elsewhere are left to the next run.
-- takes: after uuid, last uuid, jobs timestamptz
-- returns: id uuid
select j.id from jobs_workerjob j
 where j.id > %(after)s and j.id <= %(last)s and {{single_job_is_past_retention(j)}}
 order by j.id
   for update skip locked

-- statement: delete_jobs
-- Delete locked jobs with their attempts, log lines, superseded reports and dependencies.
-- takes: ids uuid[]
-- returns: deleted bigint
-- row: Deleted
-- counted:
with attempts_to_delete as materialized (
    select id from jobs_attempt where job_id = any(%(ids)s::uuid[])
),
deleted_lines as (
    delete from jobs_logline where attempt_id in (select id from attempts_to_delete)
),
deleted_superseded_reports as (
    delete from jobs_latereport where job_id = any(%(ids)s::uuid[])
),
deleted_attempts as (
    delete from jobs_attempt where job_id = any(%(ids)s::uuid[])
),
deleted_dependencies as (
    delete from jobs_stepdependency where step_id = any(%(ids)s::uuid[])
),
deleted_jobs as (
    delete from jobs_workerjob where id = any(%(ids)s::uuid[]) returning 1
)
-- counted: , byte_changes as (
-- counted:     select j.owner_id as owner, -{{bytes_of_job(j)}} as bytes
-- counted:       from jobs_workerjob j
-- counted:      where j.id = any(%(ids)s::uuid[]) and j.kind <> 'CELERY'
-- counted:      union all
-- counted:     select j.owner_id, -octet_length(l.line)
-- counted:       from attempts_to_delete join jobs_attempt a using (id) join jobs_workerjob j on j.id = a.job_id
-- counted:       join jobs_logline l on l.attempt_id = a.id
-- counted:      where j.kind <> 'CELERY'
-- counted: ),
-- counted: {{counted_bytes}}
select count(*) as deleted from deleted_jobs

-- statement: scan_executions
-- Scan the next executions by id: count the trees past their retention. `has_old` is false when the scan may stop.
-- takes: executions timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(e.id order by e.id desc))[1] as last,
       count(*) filter (where {{execution_is_past_retention(e)}}) as due,
       bool_or(e.created_at < %(executions)s) as has_old
  from (select id, root_id, created_at, finished_at from jobs_execution where id > %(after)s order by id limit %(batch)s) e

-- statement: lock_old_executions
-- Lock the roots between two ids whose trees are past their retention. Roots that are locked elsewhere are left to the
-- next run.
-- takes: after uuid, last uuid, executions timestamptz
-- returns: id uuid
select e.id from jobs_execution e
 where e.id > %(after)s and e.id <= %(last)s and {{execution_is_past_retention(e)}}
 order by e.id
   for update skip locked

-- statement: list_steps
-- Lock a batch of the steps of these trees.
-- takes: roots uuid[], batch bigint
-- returns: id uuid
select j.id
  from jobs_execution e join jobs_workerjob j on j.execution_id = e.id
 where e.root_id = any(%(roots)s::uuid[])
 order by j.id
 limit %(batch)s
   for update of j

-- statement: delete_executions
-- Delete trees of executions that have no steps any more, with their events.
-- takes: roots uuid[]
-- returns: deleted bigint
-- row: Deleted
-- counted:
with deleted_events as (
    delete from jobs_executionevent v using jobs_execution e
     where e.root_id = any(%(roots)s::uuid[]) and v.execution_id = e.id
),
deleted_executions as (
    delete from jobs_execution e where e.root_id = any(%(roots)s::uuid[]) returning e.id = e.root_id as is_root
)
-- counted: , byte_changes as (
-- counted:     select e.owner_id as owner, -{{bytes_of_execution(e)}} as bytes
-- counted:       from jobs_execution e where e.root_id = any(%(roots)s::uuid[])
-- counted: ),
-- counted: {{counted_bytes}}
select count(*) filter (where is_root) as deleted from deleted_executions

-- statement: scan_servers
-- Scan the next servers by id: count those past their retention. `has_old` is false when the scan may stop. Attempts that
-- are about to be deleted with their jobs do not count as references. The scalar subquery uses an index and never hashes
-- the whole table.
-- takes: servers timestamptz, jobs timestamptz, executions timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(s.id order by s.id desc))[1] as last,
       count(*) filter (where {{server_is_past_retention(s)}} and (
           select a.id from jobs_attempt a join jobs_workerjob j on j.id = a.job_id
            where a.server_id = s.id and {{job_is_past_retention(j)}} is not true limit 1) is null) as due,
       bool_or(s.created_at < %(servers)s) as has_old
  from (select id, state, state_changed_at, created_at from liveness_server
         where id > %(after)s order by id limit %(batch)s) s

-- statement: delete_servers
-- Delete the servers between two ids that are past their retention and have no attempts. A server that is locked, because
-- it is being reactivated, is skipped.
-- takes: after uuid, last uuid, servers timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_servers as (
    delete from liveness_server where id = any(array(
        select s.id from liveness_server s
         where s.id > %(after)s and s.id <= %(last)s and {{server_is_past_retention(s)}}
           and (select a.id from jobs_attempt a where a.server_id = s.id limit 1) is null
         order by s.id
           for update of s skip locked))
    returning id
),
deleted_tallies as (
    delete from jobs_tasktally where server_id in (select id from deleted_servers)
)
select count(*) as deleted from deleted_servers

-- statement: scan_slots
-- Scan the next trigger slots by id: count those past their retention. `has_old` is false when the scan may stop.
-- takes: executions timestamptz, after bigint, batch bigint
-- returns: last bigint|null, due bigint, has_old bool
-- row: ScannedNumbers
select (array_agg(s.id order by s.id desc))[1] as last,
       count(*) filter (where s.slot < %(executions)s and not {{slot_is_open(s)}}) as due,
       bool_or(s.slot < %(executions)s) as has_old
  from (select id, slot, outcome, is_running from jobs_triggerslot where id > %(after)s order by id limit %(batch)s) s

-- statement: delete_slots
-- Delete the trigger slots between two ids that are past their retention.
-- takes: after bigint, last bigint, executions timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_slots as (
    delete from jobs_triggerslot s
     where s.id > %(after)s and s.id <= %(last)s and s.slot < %(executions)s and not {{slot_is_open(s)}}
    returning 1
)
select count(*) as deleted from deleted_slots

-- statement: scan_backfills
-- Scan the next backfills by id: count those past their retention. `has_old` is false when the scan may stop.
-- takes: executions timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(b.id order by b.id desc))[1] as last,
       count(*) filter (where b.finished_at < %(executions)s) as due,
       bool_or(b.created_at < %(executions)s) as has_old
  from (select id, created_at, finished_at from jobs_backfill where id > %(after)s order by id limit %(batch)s) b

-- statement: delete_backfills
-- Delete the backfills between two ids that are past their retention. Only ended ones have a `finished_at`.
-- takes: after uuid, last uuid, executions timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_backfills as (
    delete from jobs_backfill b where b.id > %(after)s and b.id <= %(last)s and b.finished_at < %(executions)s returning 1
)
select count(*) as deleted from deleted_backfills
