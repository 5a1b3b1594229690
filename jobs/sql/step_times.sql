-- rule: family_of(j)
-- key of step j with * for each number. Similar steps have the same family
regexp_replace(j.step, '[0-9]+', '*', 'g')

-- statement: list_step_times
-- List when the steps of an execution could begin, began and ended, by their last attempts, and the state of the server
-- that holds each. A server without heartbeats is SILENT. Above `most` steps, similar ones share a row: those of the same
-- family and state in the same place on the axis between `since` and `until`; `steps` is their number. Hooks, the first
-- failed steps, a few live ones and steps of `opened` families have their own rows. If there are too many families,
-- neighbours form families.
-- takes: execution uuid, since timestamptz, until timestamptz, opened text[], most bigint, members bigint
-- returns: job uuid, step text, state text, position int, is_hook bool, is_kept bool, free_at timestamptz,
--   begun_at timestamptz|null, finished_at timestamptz|null, server_state text|null, family text, steps bigint
-- row: StepTimes
with times as materialized (
    select j.id as job, j.step, j.state collate "C" as state, j.position, j.is_hook, j.is_kept, j.available_at as free_at,
           case when {{needs_no_worker(j)}} and j.state not in ('BLOCKED', 'PENDING', 'SKIPPED') and not j.is_kept
                then j.available_at
                when j.attempt_count > 0
                then (select coalesce(a.started_at, a.claimed_at) from jobs_attempt a
                       where a.job_id = j.id order by a.number desc limit 1) end as begun_at,
           j.finished_at,
           case when j.state in {{LIVE}} then (
               select case when {{liveness.is_silent(s)}} then 'SILENT' else s.state end
                 from jobs_attempt a join liveness_server s on s.id = a.server_id where a.id = j.attempt_id) end as server_state,
           -- A regular expression for each of 10,000 steps is slow. Steps share a few patterns, with 0 for each digit.
           translate(j.step, '123456789', '000000000') collate "C" as pattern
      from jobs_workerjob j
     where j.execution_id = %(execution)s
),
patterns as materialized (
    select j.step as pattern, {{family_of(j)}} collate "C" as family, j.steps, j.last
      from (select pattern as step, count(*) as steps, max(position) as last from times group by pattern) j
),
sizes as materialized (
    select sum(steps)::bigint as steps, count(distinct family) as families, max(last) + 1 as positions from patterns
),
neighbours as materialized (
    select position * 24::bigint / sizes.positions as number,
           ((array_agg(step order by position))[1] || ' … ' || (array_agg(step order by position desc))[1]) collate "C" as family
      from times cross join sizes
     where sizes.steps > %(most)s and sizes.families > 200 and not is_hook
     group by number
),
named as materialized (
    select times.job, times.step, times.state, times.position, times.is_hook, times.is_kept, times.free_at, times.begun_at,
           times.finished_at, times.server_state, coalesce(neighbours.family, patterns.family) as family,
           times.free_at <= %(until)s and coalesce(times.finished_at, %(until)s) >= %(since)s
               and not times.is_kept and times.state not in ('SKIPPED', 'BLOCKED') as is_within
      from times
      join patterns on patterns.pattern = times.pattern
     cross join sizes
      left join neighbours on neighbours.number = times.position * 24::bigint / sizes.positions and not times.is_hook
),
small as materialized (
    select family from named where not is_hook group by family having count(*) < 3
),
failed as materialized (
    select job, position, is_within from named where state in ('FAILED', 'EXPIRED')
),
shown as materialized (
    (select job from failed order by position limit 10)
     union
    (select job from failed where is_within order by position limit 10)
     union
    (select job from named
      where state in ('CLAIMED', 'RUNNING') and (select count(*) from named where state in ('CLAIMED', 'RUNNING') and is_within) <= 8)
     union
    (select job from named where is_within and (select count(*) from named where is_within) <= %(most)s)
     union
    (select job
       from (select job, row_number() over (partition by family
                    order by state in ('FAILED', 'EXPIRED') desc, state in ('CLAIMED', 'RUNNING') desc, position) as place
               from named where family = any(%(opened)s::text[])) opened
      where place <= %(members)s)
),
-- As many places as the outline of a fold has.
axis as materialized (
    select extract(epoch from %(since)s::timestamptz)::float8 as since,
           extract(epoch from %(until)s::timestamptz)::float8 + 0.001 as until
),
placed as materialized (
    select own.job as own, named.*,
           case when own.job is null then width_bucket(date_part('epoch', named.begun_at), axis.since, axis.until, 120) end as begun_in,
           case when own.job is null then width_bucket(date_part('epoch', named.finished_at), axis.since, axis.until, 120) end as finished_in
      from named
     cross join sizes
     cross join axis
     cross join lateral (
           select case when sizes.steps <= %(most)s or named.is_hook or named.family in (select family from small)
                         or named.job in (select job from shown)
                       then named.job end as job offset 0) own
)
select (array_agg(job))[1] as job, (array_agg(step))[1] as step, state, min(position) as position, is_hook, is_kept,
       min(free_at) as free_at, min(begun_at) as begun_at, max(finished_at) as finished_at, server_state, family,
       count(*) as steps
  from placed
 group by begun_in, finished_in, family, state, is_hook, is_kept, server_state, own, case when own is null then is_within end
 order by min(position)

-- statement: list_family_needs
-- List the families of an execution's steps with those that they depend on, for a graph of at most `boxes` boxes. A step
-- of a family of one or two stands for itself.
-- takes: execution uuid, boxes bigint
-- returns: box text, needs text[]
-- row: FamilyNeeds
with steps as materialized (
    select j.id, j.step, {{family_of(j)}} as family from jobs_workerjob j where j.execution_id = %(execution)s and not j.is_hook
),
families as materialized (
    select family, count(*) as steps from steps group by family
),
small as materialized (
    select coalesce(array_agg(family), '{}') as families, coalesce(sum(steps), 0)::bigint as steps from families where steps < 3
)
select s.box, array_agg(distinct n.box) as needs
  from (select id, case when family = any(small.families) then step else family end as box
          from steps cross join small
         where small.steps + (select count(*) from families where families.steps >= 3) between 2 and %(boxes)s) s
 -- `offset 0` makes PostgreSQL look up each row by its key, also with poor statistics.
 cross join lateral (select d.depends_on_id from jobs_stepdependency d where d.step_id = s.id offset 0) d
 cross join lateral (select case when found.family = any((select families from small)::text[]) then found.step else found.family end as box
                       from (select j.step, {{family_of(j)}} as family from jobs_workerjob j where j.id = d.depends_on_id offset 0) found) n
 where s.box <> n.box
 group by s.box

-- statement: list_steps_page
-- List a page of the steps of an execution, without hooks: those in states of `first` come first, in its order.
-- takes: execution uuid, state text, first text[], skipped bigint, batch bigint
-- returns: id uuid
select j.id from jobs_workerjob j
 where j.execution_id = %(execution)s and not j.is_hook and (%(state)s::text is null or j.state = %(state)s)
 order by coalesce(array_position(%(first)s::text[], j.state), 100), j.position
 limit %(batch)s offset %(skipped)s
