-- step: refusing_holds(submitted) -> refusing_holds
-- List the oldest hold that refuses each `submitted` job of a client (place, owner, namespace, required_tags, action, name,
-- limits).
refusing_holds as materialized (
    select distinct on (submitted.place) submitted.place, hold.id, hold.kind, hold.value, hold.note
      from submitted
      join jobs_hold hold on hold.mode = 'refuse' and submitted.owner is not null and {{is_in_force(hold)}}
       and ({{covers_set(hold, submitted)}} or {{covers_content(hold, submitted)}})
     order by submitted.place, hold.id
)

-- step: open_holds(tag_sets) -> open_holds
-- List the oldest holds in force, with their age and the number of jobs that wait for each, counted up to `counted`. Jobs that
-- are not parked yet do not count for a hold of an action, a limit key or an execution. `name`
-- is that of the held trigger or execution, and `total` the number of all holds. `tag_sets` are those of claimable jobs.
open_holds as (
    select hold.id, hold.kind, hold.value, hold.mode, hold.note, hold.by, hold.total,
           extract(epoch from clock_timestamp() - hold.created_at)::float8 as seconds,
           {{name_of_held(hold)}} as name,
           case when hold.kind in ('tag', 'queue', 'namespace') then (
                select count(*) from (
                    select from tag_sets
                      join jobs_workerjob j on {{is_claimable(j)}}
                       and j.namespace = tag_sets.namespace and j.required_tags = tag_sets.required_tags
                     where {{covers_set(hold, tag_sets)}} limit %(counted)s) of_sets)
           else (
                select count(*) from (
                    select from jobs_workerjob j
                     where {{is_parked_by_hold(j)}} and j.parked_by ->> 'hold' = hold.id::text
                     limit %(counted)s) parked) end as jobs
      from (select h.*, count(*) over () as total from jobs_hold h where {{is_in_force(h)}} order by h.id limit 20) hold
)

-- statement: find_refusing_hold
-- Find a hold that refuses one of these jobs of a client in a namespace.
-- takes: jobs jsonb, namespace text
-- returns: id uuid, kind text, value text, note text
-- row: RefusingHold
with submitted as materialized (
    select 1 as owner, %(namespace)s::text as namespace, r.*
      from jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, name text, action jsonb, required_tags text[], limits jsonb)
),
{{refusing_holds}}
select id, kind, value, note from refusing_holds order by id limit 1

-- statement: count_parked_jobs
-- Count the waiting jobs that each of these holds covers. `name` is that of a held trigger or execution.
-- takes: holds uuid[]
-- returns: id uuid, name text|null, parked bigint
-- row: ParkedJobs
with sets as materialized (
    select j.namespace, j.required_tags, count(*) as jobs
      from jobs_workerjob j
     where j.state = 'PENDING'
       and exists (select from jobs_hold hold
                    where hold.id = any(%(holds)s::uuid[]) and hold.kind in ('tag', 'queue', 'namespace'))
     group by j.namespace, j.required_tags
)
select hold.id, {{name_of_held(hold)}} as name, case
       when hold.kind in ('action', 'limit') then (
            select count(*) from jobs_workerjob j where j.state = 'PENDING' and {{covers_content(hold, j)}})
       when hold.kind = 'execution' then (
            select count(*)
              from jobs_execution held
              join jobs_execution e on e.root_id = held.root_id
              join jobs_workerjob j on j.execution_id = e.id
             where held.id = hold.value::uuid and j.state = 'PENDING' and {{covers_execution(hold, j)}})
       else (select coalesce(sum(sets.jobs), 0)::bigint from sets where {{covers_set(hold, sets)}})
       end as parked
  from jobs_hold hold
 where hold.id = any(%(holds)s::uuid[])

-- statement: find_holds_of_jobs
-- Find the oldest hold of each of these jobs, if they wait and are on hold.
-- takes: jobs uuid[]
-- returns: job uuid, hold uuid
-- row: HeldJob
select held.job, held.hold
  from (select j.id as job, {{hold_of(j)}} as hold
          from jobs_workerjob j
         where j.id = any(%(jobs)s::uuid[]) and j.state = 'PENDING') held
 where held.hold is not null

-- statement: list_holds_to_end
-- List the holds whose time is over.
-- returns: id uuid
select h.id from jobs_hold h where h.ended_at is null and h.ends_at <= clock_timestamp() order by h.id

-- statement: end_hold
-- End a hold, and move the timeouts of the executions that it held by the time for which it did. With `is_due` only a
-- hold whose time is over ends. The caller locked the root of these executions.
-- takes: hold uuid, is_due bool
-- returns: id uuid
with ended as (
    update jobs_hold h
       set ended_at = clock_timestamp(), ended_observed = observed_now()
     where h.id = %(hold)s and h.ended_at is null and (not %(is_due)s or h.ends_at <= clock_timestamp())
 returning h.*
),
held_executions as (
    select e.execution_id, ended.ended_observed - greatest(ended.begun_observed, e.started_observed) as seconds
      from ended
     cross join lateral (
           select x.root_id from jobs_execution x
            where x.id = case ended.kind when 'execution' then ended.value::uuid end offset 0) held
     cross join lateral (
           select x.id as execution_id, x.namespace, x.started_observed from jobs_execution x
            where x.root_id = held.root_id and x.state = 'RUNNING' offset 0) e
     where {{covers_execution(ended, e)}}
),
continued as (
    update jobs_execution e
       set started_observed = e.started_observed + greatest(held_executions.seconds, 0)
      from held_executions
     where e.id = any(array[held_executions.execution_id])
)
select id from ended

-- statement: delete_ended_holds
-- Delete holds that ended more than `kept` seconds ago. Until then, the wait for a worker counts from their end.
-- takes: kept float8
-- returns: id uuid
delete from jobs_hold h where h.ended_at < clock_timestamp() - make_interval(secs => %(kept)s) returning h.id

-- statement: list_holds_of
-- List the holds in force of one execution or trigger, oldest first: those of itself, of its namespace, and of an execution
-- above it.
-- takes: kind text, value text
-- returns: id uuid, kind text, value text, mode text, note text, by text, created_at timestamptz, ends_at timestamptz|null
-- row: HoldOfOne
select h.id, h.kind, h.value, h.mode, h.note, h.by, h.created_at, h.ends_at
  from jobs_hold h
  join (select e.id as execution_id, e.namespace from jobs_execution e
         where e.id = case %(kind)s::text when 'execution' then %(value)s::text::uuid end
         union all
        select null, t.namespace from jobs_trigger t
         where t.id = case %(kind)s::text when 'trigger' then %(value)s::text::uuid end) it
    on h.kind = %(kind)s and h.value = %(value)s or {{covers_execution(h, it)}}
    or h.kind = 'namespace' and h.value = it.namespace and (h.namespace is null or h.namespace = it.namespace)
 where {{is_in_force(h)}}
 order by h.id
