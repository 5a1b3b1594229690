-- rule: family_of(j)
-- key of step j with * for each number. Similar steps have the same family
regexp_replace(j.step, '[0-9]+', '*', 'g')

-- statement: list_step_times
-- List when the steps of an execution could begin, began and ended, by their last attempts, and the state of the server
-- that holds each. A server without heartbeats is SILENT. Above `most` steps, similar ones share a row: those of the same
-- family and state in the same place on the axis between `since` and `until`; `steps` is their number. Hooks, the first
-- failed steps, a few live ones, steps of `opened` families and those in the table have their own rows. If there are too
-- many families, neighbours form families. `place` is the place in the table on its page: without hooks, and if there is
-- more than one page, steps in states of `first` come first, in its order.
-- takes: execution uuid, since timestamptz, until timestamptz, opened text[], most bigint, members bigint,
--   state text, first text[], skipped bigint, batch bigint
-- returns: job uuid, step text, state text, position int, is_hook bool, is_kept bool, free_at timestamptz,
--   begun_at timestamptz|null, finished_at timestamptz|null, server_state text|null, family text, steps bigint,
--   place bigint|null
-- row: StepTimes
with times as materialized (
    -- Steps are read once. Later parts select them by `in`: with poor statistics, a join may compare each step with each.
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
           j.available_at <= %(until)s and coalesce(j.finished_at, %(until)s) >= %(since)s
               and not j.is_kept and j.state not in ('SKIPPED', 'BLOCKED') as is_within,
           -- A regular expression for each of 10,000 steps is slow. Steps share a few patterns, with 0 for each digit.
           translate(j.step, '123456789', '000000000') collate "C" as pattern
      from jobs_workerjob j
     where j.execution_id = %(execution)s
),
patterns as materialized (
    select j.step as pattern, {{family_of(j)}} collate "C" as family, j.*
      from (select pattern as step, count(*) as steps, count(*) filter (where not is_hook) as own, max(position) as last,
                   count(*) filter (where not is_hook and (%(state)s::text is null or state = %(state)s)) as matching,
                   count(*) filter (where is_within) as within,
                   count(*) filter (where is_within and state in ('CLAIMED', 'RUNNING')) as live
              from times group by pattern) j
),
sizes as materialized (
    select steps > %(most)s as is_large, steps > %(most)s and families > 200 as is_diverse, positions,
           matching > %(batch)s as has_pages, within <= %(most)s as few_within, live <= 8 as few_live
      from (select sum(steps)::bigint as steps, count(distinct family) as families, max(last) + 1 as positions,
                   sum(matching)::bigint as matching, sum(within)::bigint as within, sum(live)::bigint as live
              from patterns) all_steps
),
neighbours as materialized (
    select position * 24::bigint / (select positions from sizes) as number,
           string_agg(step, ' … ' order by position) collate "C" as family
      from times
     where (select is_diverse from sizes) and not is_hook and position = any(array(
               select unnest(array[min(t.position), max(t.position)])
                 from times t
                where (select is_diverse from sizes) and not t.is_hook
                group by t.position * 24::bigint / (select positions from sizes)))
     group by number
),
failed as materialized (
    select job, position, is_within from times where state in ('FAILED', 'EXPIRED')
),
listed as materialized (
    select job, %(skipped)s + row_number() over (order by rank, position) as place
      from (select job, position, case when (select has_pages from sizes)
                   then coalesce(array_position(%(first)s::text[], state), 100) end as rank
              from times
             where not is_hook and (%(state)s::text is null or state = %(state)s)
             order by rank, position limit %(batch)s offset %(skipped)s) page
),
opened as materialized (
    select job, row_number() over (partition by family
               order by state in ('FAILED', 'EXPIRED') desc, state in ('CLAIMED', 'RUNNING') desc, position) as place
      from (select times.*, patterns.family
              from times join patterns on patterns.pattern = times.pattern
             where cardinality(%(opened)s::text[]) > 0 and not (select is_diverse from sizes)
             union all
            select times.*, neighbours.family
              from times join neighbours on neighbours.number = times.position * 24::bigint / (select positions from sizes)
             where cardinality(%(opened)s::text[]) > 0) named
     where family = any(%(opened)s::text[]) and not is_hook
),
shown as materialized (
    (select job from failed order by position limit 10)
     union all
    (select job from failed where is_within order by position limit 10)
     union all
    (select job from times where (select few_live from sizes) and state in ('CLAIMED', 'RUNNING'))
     union all
    (select job from times where (select few_within from sizes) and is_within)
     union all
    (select job from opened where place <= %(members)s)
     union all
    (select job from listed)
),
alone as materialized (
    select times.*
      from times
     where (select not is_large from sizes) or is_hook or job in (select job from shown)
        or pattern in (select pattern from patterns
                        where not (select is_diverse from sizes)
                          and family in (select family from patterns group by family having sum(own) < 3))
),
axis as materialized (
    select extract(epoch from %(since)s::timestamptz)::float8 as since,
           extract(epoch from %(until)s::timestamptz)::float8 + 0.001 as until
),
-- Groups by pattern are few. So their families are named and joined after that.
alike as materialized (
    select (array_agg(job))[1] as job, (array_agg(step))[1] as step, state, min(position) as position, is_kept,
           min(free_at) as free_at, min(begun_at) as begun_at, max(finished_at) as finished_at, server_state,
           part, is_within, begun_in, finished_in, count(*) as steps
      from (select times.*,
                   case when (select is_diverse from sizes)
                        then (position * 24::bigint / (select positions from sizes))::text else pattern end as part,
                   -- As many places as the outline of a fold has.
                   width_bucket(date_part('epoch', begun_at), (select since from axis), (select until from axis), 120) as begun_in,
                   width_bucket(date_part('epoch', finished_at), (select since from axis), (select until from axis), 120) as finished_in
              from times
             where (select is_large from sizes) and job not in (select job from alone)) placed
     group by begun_in, finished_in, part, state, is_kept, server_state, is_within
)
select j.job, j.step, j.state, j.position, j.is_hook, j.is_kept, j.free_at, j.begun_at, j.finished_at, j.server_state,
       coalesce(neighbours.family, {{family_of(j)}}) as family, 1::bigint as steps, listed.place
  from alone j
  left join neighbours on not j.is_hook and neighbours.number = j.position * 24::bigint / (select positions from sizes)
  left join listed on listed.job = j.job
 union all
select (array_agg(job))[1], (array_agg(step))[1], state, min(position), false, is_kept, min(free_at), min(begun_at),
       max(finished_at), server_state, family, sum(steps)::bigint, null
  from (select alike.*, coalesce(neighbours.family, {{family_of(j)}}) as family
          from alike
          left join neighbours on neighbours.number::text = alike.part
         cross join lateral (select alike.part as step) j) named
 group by begun_in, finished_in, family, state, is_kept, server_state, is_within
 order by position

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
