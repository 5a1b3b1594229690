-- step: jobs_by_state -> figures
-- How many jobs there are of each state. What lives is counted. What has ended may be millions: it is counted up to
-- `counted`, and beyond that (`is_full`) the planner's statistics say about how many there are. Of one cluster (empty: of
-- all) nothing is counted.
estimates as (
    select common.state, (c.reltuples * common.share)::bigint as jobs
      from pg_class c
      join pg_stats s on s.schemaname = c.relnamespace::regnamespace::text and s.tablename = c.relname
     cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs) as common (state, share)
     where c.oid = 'jobs_workerjob'::regclass and s.attname = 'state'
),
counted as (
    select state, count(*) as jobs, false as is_full
      from jobs_workerjob where %(cluster)s::text = '' and state in {{OPEN}} group by state
    union all
    select state, up_to_limit.jobs, up_to_limit.jobs = %(counted)s
      from unnest(%(ended)s::text[]) ended (state)
     cross join lateral (
           select count(*) as jobs
             from (select from jobs_workerjob j
                    -- A range and this order, which job_by_state alone has: nothing else is to be walked over.
                    where j.state between ended.state and ended.state
                    order by j.state, j.id limit %(counted)s) few) up_to_limit
     where %(cluster)s::text = ''
),
figures as (
    select counted.state, is_full, case when is_full then greatest(estimates.jobs, counted.jobs) else counted.jobs end as jobs
      from counted left join estimates using (state)
)

-- statement: read_figures
-- How it stands, in one row: jobs by state, those `about` which only statistics tell; flagged are those that stand
-- still; and by tags, those that fail soon for want of a worker. Of one cluster (empty: of all) the jobs are counted by
-- `read_cluster_figures`, and not here.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool, counted bigint, ended text[],
--   cluster text
-- returns: now timestamptz, observed float8, witnessed bool, observed_lag float8, check_age float8|null,
--   took float8|null, finished float8|null, counts jsonb|null, flags jsonb|null, flagged_tags jsonb|null,
--   to_be_failed jsonb|null, about jsonb|null, waiting float8|null, brakes jsonb|null,
--   maintenances jsonb|null, rows_left_out jsonb|null
-- row: InstanceFigures
with recursive {{pending_tag_sets}},
{{jobs_without_worker}},
{{flagged_jobs}},
{{jobs_to_be_failed}},
{{jobs_by_state}}
select clock_timestamp() as now,
       clock.reading as observed, clock.witnessed,
       extract(epoch from clock_timestamp() - clock.moved_at)::float8 as observed_lag,
       extract(epoch from clock_timestamp() - clock.finished_at)::float8 as check_age, clock.took,
       extract(epoch from clock.finished_at)::float8 as finished,
       (select jsonb_object_agg(state, jobs) from figures where jobs > 0) as counts,
       (select jsonb_object_agg(flag, jobs) from (select flag, count(*) as jobs from flagged group by flag) f) as flags,
       (select jsonb_agg(to_jsonb(f) order by jobs desc)
          from (select flag, tags, count(*) as jobs from flagged group by flag, tags order by jobs desc limit 20) f) as flagged_tags,
       (select jsonb_agg(to_jsonb(f) order by seconds)
          from (select tags, count(*) as jobs, min(seconds) as seconds
                  from to_be_failed group by tags order by seconds limit 20) f) as to_be_failed,
       (select jsonb_agg(state) from figures where is_full) as about,
       (select extract(epoch from clock_timestamp() - min(available_at))::float8
          from jobs_workerjob where %(cluster)s::text = '' and state = 'PENDING' and available_at <= clock_timestamp()) as waiting,
       (select jsonb_agg(to_jsonb(brake) || jsonb_build_object('cluster', nullif(cluster, '')) order by type, cluster)
          from liveness_brake brake where released_by is null) as brakes,
       {{liveness.maintenances}} as maintenances,
       {{liveness.rows_left_out}} as rows_left_out
  from liveness_clock clock

-- statement: read_job_counts
-- How many jobs there are of each state, as `read_figures` has it.
-- takes: counted bigint, ended text[], cluster text
-- returns: counts jsonb|null, about jsonb|null
-- row: JobCounts
with {{jobs_by_state}}
select (select jsonb_object_agg(state, jobs) from figures where jobs > 0) as counts,
       (select jsonb_agg(state) from figures where is_full) as about

-- statement: read_flags
-- Which of these jobs stand still, and why.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool
-- returns: id uuid, flag text
-- row: FlaggedJob
with tag_sets as (
    select distinct j.namespace, j.required_tags from jobs_workerjob j where j.id = any(%(only)s::uuid[]) and j.state = 'PENDING'
),
{{jobs_without_worker}},
{{flagged_jobs}}
select id, flag from flagged

-- statement: read_placement
-- For a waiting job, every alive server of its namespace: its load, or the first filter that rules it out (`obstacle_to_job`). A row
-- without a server when there is none, or the job does not wait.
-- takes: job uuid, owner uuid, staleness_multiplier float8
-- returns: state text, waits_until timestamptz|null, stops_on jsonb|null, server uuid|null, name text|null,
--   filter text|null, detail text|null, load float8|null
-- row: PlacementRow
with waiting_job as materialized (
    select j.state, j.namespace, j.required_tags, j.refused_by,
           case when j.available_at > clock_timestamp() then j.available_at end as waits_until,
           (select jsonb_build_object('id', s.id, 'name', s.name)
              from jobs_takenattempt t join liveness_server s on s.id = t.server_id
             where t.job_id = j.id and t.had_begun limit 1) as stops_on
      from jobs_workerjob j
     where j.id = %(job)s and {{visible_to_caller(j)}}
),
alive_servers as (
    select s.*, {{held_attempts(s)}} as held, {{obstacle_to_job(s, waiting_job)}} as filter,
           (select observed_now()) - s.heard_observed as silence
      from liveness_server s cross join waiting_job
     where s.state in {{ALIVE}} and s.namespace = waiting_job.namespace and waiting_job.state = 'PENDING'
)
select waiting_job.state, waiting_job.waits_until, waiting_job.stops_on, s.id as server, s.name, s.filter,
       case s.filter
           when 'type' then format('it is of type %%s, not WORKER', s.type)
           when 'state' then format('it is %%s, not RUNNING', s.state)
           when 'freshness' then case
               when s.last_heartbeat_at is null then 'it was not heard yet'
               else format('its last heartbeat was %%s s ago: stale from %%s s on', floor(round(s.silence::numeric, 3)),
                           s.heartbeat_interval * %(staleness_multiplier)s) end
           when 'cordon' then case
               when s.drain_deadline is not null then format('it is being drained by %%s', s.cordoned_by)
               else format('cordoned by %%s: %%s', s.cordoned_by, s.cordon_reason) end
           when 'maintenance' then case
               when (select maintenance_since is null from liveness_instance) then format('its cluster %%s is in maintenance', s.cluster)
               else 'the control plane is in maintenance' end
           when 'tags' then format('it lacks %%s', array_to_string(array(
               select unnest(waiting_job.required_tags) except select unnest(s.tags) order by 1), ', '))
           when 'refused' then 'it gave the job back as not allowed'
           when 'capacity' then format('%%s of %%s in use', s.held, s.max_concurrent)
       end as detail,
       s.held::float8 / nullif(s.max_concurrent, 0) as load
  from waiting_job
  left join alive_servers s on true
 order by array_position({{liveness.filters}}, s.filter), load, s.name, s.id

-- statement: read_log_page
-- Lines of a job after a line, oldest first; attempt by attempt, so that each is read by its index.
-- takes: after bigint, limit bigint, job uuid, attempt int
-- returns: id bigint, at timestamptz, attempt int, stream text, line text
-- row: WrittenLine
select l.id, l.at, a.number as attempt, l.stream, l.line
  from jobs_attempt a
 cross join lateral (
       select * from jobs_logline l where l.attempt_id = a.id and l.id > %(after)s order by l.id limit %(limit)s
       ) l
 where a.job_id = %(job)s and (%(attempt)s::int is null or a.number = %(attempt)s)
 order by l.id
 limit %(limit)s

-- statement: find_log_lines_before
-- The last lines of a job before a line that are of one stream, or hold a text, whatever its case, latest first: of the
-- last `looked_at` at most. So many were `looked` at, of which these are the `first` and the `last` (null: there are
-- none); without a match one row says so.
-- takes: before bigint, job uuid, attempt int, stream text, holds text, looked_at bigint, limit bigint
-- returns: first bigint|null, last bigint|null, looked bigint, id bigint|null, at timestamptz|null, attempt int|null,
--   stream text|null, line text|null
-- row: FoundLine
with looked as (
    select l.id, l.at, a.number as attempt, l.stream, l.line
      from jobs_attempt a
     cross join lateral (
           select * from jobs_logline l where l.attempt_id = a.id and l.id < %(before)s
            order by l.id desc limit %(looked_at)s
           ) l
     where a.job_id = %(job)s and (%(attempt)s::int is null or a.number = %(attempt)s)
     order by l.id desc
     limit %(looked_at)s
)
select whole.*, found.*
  from (select min(id) as first, max(id) as last, count(*) as looked from looked) whole
  left join lateral (
       select * from looked
        where {{is_sought_line(looked)}}
        order by id desc
        limit %(limit)s
       ) found on true
 order by found.id desc

-- statement: find_log_lines_after
-- The first such lines after a line, oldest first.
-- takes: after bigint, job uuid, attempt int, stream text, holds text, looked_at bigint, limit bigint
-- returns: first bigint|null, last bigint|null, looked bigint, id bigint|null, at timestamptz|null, attempt int|null,
--   stream text|null, line text|null
-- row: FoundLine
with looked as (
    select l.id, l.at, a.number as attempt, l.stream, l.line
      from jobs_attempt a
     cross join lateral (
           select * from jobs_logline l where l.attempt_id = a.id and l.id > %(after)s
            order by l.id limit %(looked_at)s
           ) l
     where a.job_id = %(job)s and (%(attempt)s::int is null or a.number = %(attempt)s)
     order by l.id
     limit %(looked_at)s
)
select whole.*, found.*
  from (select min(id) as first, max(id) as last, count(*) as looked from looked) whole
  left join lateral (
       select * from looked
        where {{is_sought_line(looked)}}
        order by id
        limit %(limit)s
       ) found on true
 order by found.id
