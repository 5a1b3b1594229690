-- step: queues -> queues
-- Count the jobs of each queue: of each namespace and set of required tags. `waiting` jobs may start now, `parked` ones wait
-- for something other than a worker, `scheduled` ones start later, and `running` ones are held by a worker. Jobs with the
-- empty tag are left out, because the control plane starts those itself. `tag` (null: any) is one of the tags of the queue.
-- Of the parked jobs, `on_hold` ones wait for a hold, `in_loops` ones for other items of their loop, and the rest for limits.
queues as (
    select q.namespace, q.required_tags, case when q.is_held then 0 else q.waiting end as waiting,
           q.limited + q.in_loops + q.on_hold + case when q.is_held then q.waiting else 0 end as parked,
           q.on_hold + case when q.is_held then q.waiting else 0 end as on_hold, q.in_loops, q.scheduled, q.running, q.oldest_at
      from (
    select counted.namespace, counted.required_tags, {{is_held_set(counted)}} as is_held,
           sum(counted.waiting)::bigint as waiting, sum(counted.limited)::bigint as limited, sum(counted.on_hold)::bigint as on_hold,
           sum(counted.in_loops)::bigint as in_loops,
           sum(counted.scheduled)::bigint as scheduled, sum(counted.running)::bigint as running, min(counted.oldest_at) as oldest_at
      from (select j.namespace, j.required_tags,
                   count(*) filter (where j.parked_by is null and j.available_at <= (select clock_timestamp())
                                      and not {{is_held_by_itself(j)}}) as waiting,
                   count(*) filter (where j.parked_by is not null and not j.parked_by ?| array['hold', 'max_parallel']) as limited,
                   count(*) filter (where j.parked_by ? 'max_parallel') as in_loops,
                   count(*) filter (where j.parked_by ->> 'hold' is not null or j.parked_by is null
                                      and j.available_at <= (select clock_timestamp()) and {{is_held_by_itself(j)}}) as on_hold,
                   count(*) filter (where j.parked_by is null and j.available_at > (select clock_timestamp())) as scheduled, 0 as running,
                   min(j.available_at) filter (where j.available_at <= (select clock_timestamp())) as oldest_at
              from jobs_workerjob j
             where j.state = 'PENDING' and j.required_tags <> array[''] and {{is_in_namespaces(j)}}
               and (%(tag)s::text is null or %(tag)s::text = any(j.required_tags))
             group by j.namespace, j.required_tags
             union all
            select j.namespace, j.required_tags, 0, 0, 0, 0, 0, count(*), null
              from jobs_workerjob j
             where j.state in {{LIVE}} and j.required_tags <> array[''] and {{is_in_namespaces(j)}}
               and (%(tag)s::text is null or %(tag)s::text = any(j.required_tags))
             group by j.namespace, j.required_tags) counted
     group by counted.namespace, counted.required_tags) q
)

-- statement: list_queues
-- List queues by namespace and tags, after the queue of `after_namespace` and `after_tags` (null: from the first). `workers`
-- may get work and have the tags; a full one counts, because it will have room again. `hold` is the oldest hold of all jobs of
-- the queue.
-- takes: namespaces text[], tag text, after_namespace text, after_tags text[], limit bigint, staleness_multiplier float8
-- returns: namespace text, tags text[], waiting bigint, parked bigint, on_hold bigint, in_loops bigint, scheduled bigint,
--   running bigint, oldest_at timestamptz|null, hold jsonb|null, workers bigint
-- row: Queue
with {{queues}}
select q.namespace, q.required_tags as tags, q.waiting, q.parked, q.on_hold, q.in_loops, q.scheduled, q.running, q.oldest_at,
       (select {{hold_in_json(hold)}} from jobs_hold hold
         where {{is_in_force(hold)}} and {{covers_set(hold, q)}} order by hold.id limit 1) as hold,
       (select count(*) from liveness_server s
         where {{liveness.may_get_work(s)}} and s.max_concurrent > 0 and {{is_suited(s, q)}}) as workers
  from (select * from queues
         where %(after_namespace)s::text is null
            or (namespace, required_tags) > (%(after_namespace)s::text, %(after_tags)s::text[])
         order by namespace, required_tags
         limit %(limit)s) q
 order by q.namespace, q.required_tags

-- statement: list_largest_queues
-- List the `limit` queues with most jobs, largest first, and one row `other` for all the rest together.
-- takes: namespaces text[], tag text, limit bigint
-- returns: namespace text, tags text, waiting bigint, parked bigint, on_hold bigint, in_loops bigint, running bigint
-- row: LargestQueue
with {{queues}},
ranked as (
    select queues.*, row_number() over (order by waiting + parked + running desc, namespace, required_tags) <= %(limit)s as is_named
      from queues
)
select namespace, array_to_string(required_tags, ',') as tags, waiting, parked, on_hold, in_loops, running
  from ranked where is_named
 union all
select 'other', 'other', sum(waiting)::bigint, sum(parked)::bigint, sum(on_hold)::bigint, sum(in_loops)::bigint,
       sum(running)::bigint
  from ranked where not is_named having count(*) > 0

-- statement: read_queue_rates
-- Read how many jobs of each queue were submitted and ended lately. `seconds` is the time of the rates and `minutes` that of
-- the chart; `chart` has the jobs that ended in each whole minute, by its number before the current one. At most the last
-- `most` jobs are read, so `submitted_in`, `ended_in` (seconds) and `chart_minutes` are what was really covered.
-- takes: namespaces text[], tag text, seconds float8, minutes int, most bigint
-- returns: namespace text, tags text[], submitted bigint, submitted_in float8, ended bigint, ended_in float8,
--   chart jsonb|null, chart_minutes int
-- row: QueueRate
with moment as materialized (
    select clock_timestamp() as now, date_trunc('minute', clock_timestamp(), 'UTC') as minute
),
latest as materialized (
    -- Ids of jobs begin with the time of their submission.
    select j.namespace, j.required_tags, j.created_at as at
      from jobs_workerjob j
     where j.id >= (select (lpad(to_hex((extract(epoch from now - make_interval(secs => %(seconds)s)) * 1000)::bigint), 12, '0')
                            || repeat('0', 20))::uuid from moment)
     order by j.id desc limit %(most)s
),
ended as materialized (
    select j.namespace, j.required_tags, j.finished_at as at
      from jobs_workerjob j
     where j.finished_at >= (select minute - make_interval(mins => %(minutes)s) from moment)
     order by j.finished_at desc limit %(most)s
),
covered as materialized (
    select case when (select count(*) from latest) = %(most)s then (select min(at) from latest) end as latest_since,
           case when (select count(*) from ended) = %(most)s then (select min(at) from ended) end as ended_since
),
periods as materialized (
    select least(%(seconds)s, extract(epoch from now - latest_since)::float8) as submitted_in,
           least(%(seconds)s, extract(epoch from now - ended_since)::float8) as ended_in,
           greatest(0, least(%(minutes)s, floor(extract(epoch from minute - ended_since) / 60)::int)) as chart_minutes
      from moment, covered
),
lately as (
    select namespace, required_tags, count(*) as submitted, 0::bigint as ended
      from latest group by namespace, required_tags
     union all
    select namespace, required_tags, 0, count(*)
      from ended, moment where at > now - make_interval(secs => %(seconds)s) group by namespace, required_tags
),
charts as (
    select namespace, required_tags, jsonb_object_agg(place, jobs) as chart
      from (select namespace, required_tags, ceil(extract(epoch from minute - at) / 60)::int - 1 as place, count(*) as jobs
              from ended, moment where at < minute group by 1, 2, 3) of_minute
     group by namespace, required_tags
)
select q.namespace, q.required_tags as tags, coalesce(sum(lately.submitted), 0)::bigint as submitted, periods.submitted_in,
       coalesce(sum(lately.ended), 0)::bigint as ended, periods.ended_in, charts.chart, periods.chart_minutes
  from (select namespace, required_tags from lately union select namespace, required_tags from charts) q
  left join lately using (namespace, required_tags)
  left join charts using (namespace, required_tags)
 cross join periods
 where {{is_in_namespaces(q)}} and (%(tag)s::text is null or %(tag)s::text = any(q.required_tags))
 group by q.namespace, q.required_tags, periods.submitted_in, periods.ended_in, periods.chart_minutes, charts.chart
