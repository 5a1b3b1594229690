-- step: longest_wait(waiting_jobs) -> longest_wait
-- The seconds for which the oldest job of `waiting_jobs` has waited (null: no job waits). Only the first `counted` jobs
-- by `available_at` are read, and the first one that was never claimed.
longest_wait as (
    select extract(epoch from clock_timestamp() - least(
               (select min({{waits_since(j)}})
                  from (select w.id, w.available_at, w.attempt_count from waiting_jobs w
                         where w.available_at <= (select clock_timestamp())
                         order by w.available_at limit %(counted)s) j),
               (select w.available_at from waiting_jobs w
                 where w.available_at <= (select clock_timestamp()) and w.attempt_count = 0
                 order by w.available_at limit 1)))::float8 as seconds
)

-- step: jobs_by_state -> figures
-- Count the jobs of each state. Open jobs are counted exactly. Ended jobs may be millions: they are counted up to
-- `counted`, above that (`is_full`) the planner's statistics give an estimate. For one cluster (not empty) nothing is
-- counted.
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
                    -- Only the index job_by_state has this range and order, so PostgreSQL reads nothing else.
                    where j.state between ended.state and ended.state
                    order by j.state, j.id limit %(counted)s) few) up_to_limit
     where %(cluster)s::text = ''
),
figures as (
    select counted.state, is_full, case when is_full then greatest(estimates.jobs, counted.jobs) else counted.jobs end as jobs
      from counted left join estimates using (state)
)

-- prepared statement: read_figures
-- Read the figures of the whole instance in one row: jobs by state, flagged jobs, jobs that fail soon because no worker
-- has their tags, brakes, maintenances and clocks. `about` lists the states whose numbers are estimates. For one cluster
-- (not empty) `read_cluster_figures` counts the jobs instead.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool,
--   fails_stale_running bool, running_stale_after float8, requeues_stale_claimed bool, claimed_stale_after float8,
--   counted bigint, ended text[], cluster text
-- returns: now timestamptz, observed float8, witnessed bool, observed_lag float8, check_age float8|null,
--   took float8|null, finished float8|null, counts jsonb|null, flags jsonb|null, flagged_tags jsonb|null,
--   to_be_failed jsonb|null, about jsonb|null, waiting float8|null, brakes jsonb|null,
--   maintenances jsonb|null, rows_left_out jsonb|null, oldest_snapshot jsonb|null, holds jsonb|null
-- row: InstanceFigures
with recursive {{pending_tag_sets}},
{{jobs_without_worker}},
{{flagged_jobs}},
{{jobs_to_be_failed}},
{{jobs_by_state}},
waiting_jobs as not materialized (
    select j.id, j.available_at, j.attempt_count
      from jobs_workerjob j where %(cluster)s::text = '' and {{is_pending(j)}}
),
{{longest_wait}},
{{open_holds}}
select clock_timestamp() as now,
       clock.reading as observed, clock.witnessed,
       extract(epoch from clock_timestamp() - clock.moved_at)::float8 as observed_lag,
       extract(epoch from clock_timestamp() - clock.finished_at)::float8 as check_age, clock.took,
       extract(epoch from clock.finished_at)::float8 as finished,
       (select jsonb_object_agg(state, jobs) from figures where jobs > 0) as counts,
       (select jsonb_object_agg(flag, jobs) from (select flag, count(*) as jobs from flagged group by flag) f) as flags,
       (select jsonb_agg(to_jsonb(f) order by jobs desc)
          from (select flag, tags, count(*) as jobs, (array_agg(id))[1] as first
                  from flagged group by flag, tags order by jobs desc limit 20) f) as flagged_tags,
       (select jsonb_agg(to_jsonb(f) order by seconds)
          from (select tags, count(*) as jobs, min(seconds) as seconds, (array_agg(id))[1] as first
                  from to_be_failed group by tags order by seconds limit 20) f) as to_be_failed,
       (select jsonb_agg(state) from figures where is_full) as about,
       (select seconds from longest_wait) as waiting,
       (select jsonb_agg(to_jsonb(brake) || jsonb_build_object('cluster', nullif(cluster, ''), 'key', {{liveness.brake_key(brake)}}, 'words', {{liveness.brake_words(brake)}}) order by type, namespace, cluster)
          from liveness_brake brake where released_by is null) as brakes,
       {{liveness.maintenances}} as maintenances,
       {{liveness.rows_left_out}} as rows_left_out,
       {{liveness.oldest_snapshot}} as oldest_snapshot,
       (select jsonb_agg(to_jsonb(h) order by h.id) from open_holds h) as holds
  from liveness_clock clock

-- prepared statement: read_job_counts
-- Count the jobs of each state, as in `read_figures`.
-- takes: counted bigint, ended text[], cluster text
-- returns: counts jsonb|null, about jsonb|null
-- row: JobCounts
with {{jobs_by_state}}
select (select jsonb_object_agg(state, jobs) from figures where jobs > 0) as counts,
       (select jsonb_agg(state) from figures where is_full) as about

-- statement: read_flags
-- Return which of these jobs will not move until a person acts, and why.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool,
--   fails_stale_running bool, running_stale_after float8, requeues_stale_claimed bool, claimed_stale_after float8
-- returns: id uuid, flag text
-- row: FlaggedJob
with tag_sets as (
    select distinct j.namespace, j.required_tags from jobs_workerjob j where j.id = any(%(only)s::uuid[]) and j.state = 'PENDING'
),
{{jobs_without_worker}},
{{flagged_jobs}}
select id, flag from flagged

-- statement: count_jobs_ahead
-- Count the waiting jobs of the same namespace and required tags that are claimed before a job, up to `most`. Jobs with a
-- turn and jobs without one are claimed by turns, so of its own priority only those of its own kind count.
-- takes: only uuid[], most bigint
-- returns: jobs bigint
-- row: JobsAhead
select count(ahead.id) as jobs
  from jobs_workerjob j
 cross join lateral (
       select * from (
           select other.id from jobs_workerjob other
            where {{is_claimable(other)}} and other.namespace = j.namespace
              and other.required_tags = j.required_tags and other.priority > j.priority
              and other.available_at <= clock_timestamp()
            limit %(most)s) more_urgent
        union all
       select * from (
           select other.id from jobs_workerjob other
            where {{is_claimable(other)}} and other.namespace = j.namespace
              and other.required_tags = j.required_tags and other.priority = j.priority
              and (other.turn, other.available_at, other.id) < (j.turn, j.available_at, j.id) and other.turn >= least(j.turn, 1)
            limit %(most)s) older
        limit %(most)s) ahead
 where j.id = any(%(only)s::uuid[])

-- statement: read_prospects
-- Return which of these jobs will not move until a person acts (`flag`), and which will fail unless a worker with their
-- tags comes (`fails_in` seconds). In maintenance no job fails for this reason.
-- takes: only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool,
--   fails_stale_running bool, running_stale_after float8, requeues_stale_claimed bool, claimed_stale_after float8
-- returns: id uuid, flag text|null, fails_in float8|null
-- row: Prospect
with tag_sets as (
    select distinct j.namespace, j.required_tags from jobs_workerjob j where j.id = any(%(only)s::uuid[]) and j.state = 'PENDING'
),
{{jobs_without_worker}},
{{flagged_jobs}},
{{jobs_to_be_failed}}
select id, flag, null::float8 as fails_in from flagged
 union all
select id, null, seconds from to_be_failed
 where not exists (select from liveness_instance where maintenance_since is not null)

-- statement: list_flagged_jobs
-- List the newest jobs with a flag, up to `limit`. Of each set of tags `scan_limit` jobs are checked.
-- takes: flag text, limit bigint, only uuid[], scan_limit bigint, unmatched_after float8, wait_after_loss bool,
--   fails_stale_running bool, running_stale_after float8, requeues_stale_claimed bool, claimed_stale_after float8
-- returns: id uuid
with recursive {{pending_tag_sets}},
{{jobs_without_worker}},
{{flagged_jobs}}
select id from flagged where flag = %(flag)s order by id desc limit %(limit)s

-- statement: read_placement
-- Read every alive server of the namespace of a waiting job: its load, or the first filter that rules it out
-- (`obstacle_to_job`). Without servers, or if the job does not wait, there is one row without a server.
-- takes: job uuid, owner uuid, staleness_multiplier float8
-- returns: state text, parked_by jsonb|null, waits_until timestamptz|null, stops_on jsonb|null, hold jsonb|null, server uuid|null, name text|null,
--   filter text|null, detail text|null, load float8|null
-- row: PlacementRow
with waiting_job as materialized (
    select j.state, j.parked_by, j.namespace, j.required_tags, j.refused_by, j.worker_slots,
           case when j.available_at > clock_timestamp() then j.available_at end as waits_until,
           (select jsonb_build_object('id', s.id, 'name', s.name)
              from jobs_takenattempt t join liveness_server s on s.id = t.server_id
             where t.job_id = j.id and t.had_begun limit 1) as stops_on,
           (select {{hold_in_json(h)}} from jobs_hold h where h.id = {{hold_of(j)}}) as hold
      from jobs_workerjob j
     where j.id = %(job)s and {{visible_to_caller(j)}}
),
alive_servers as (
    select s.*, {{used_slots(s)}} as held, {{obstacle_to_job(s, waiting_job)}} as filter,
           (select observed_now()) - s.heard_observed as silence
      from liveness_server s cross join waiting_job
     where s.state in {{ALIVE}} and s.namespace = waiting_job.namespace and waiting_job.state = 'PENDING'
)
select waiting_job.state, waiting_job.parked_by, waiting_job.waits_until, waiting_job.stops_on, waiting_job.hold, s.id as server, s.name, s.filter,
       case s.filter
           when 'type' then format('it is of type %%s, not WORKER', s.type)
           when 'state' then format('it is %%s, not RUNNING', s.state)
           when 'freshness' then case
               when s.last_heartbeat_at is null then 'it has not sent a heartbeat yet'
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
           when 'refused' then 'it refused the job as not allowed'
           when 'slots' then format('it has %%s slots, but the job needs %%s', s.max_concurrent, waiting_job.worker_slots)
           when 'capacity' then format('%%s of %%s in use', s.held, s.max_concurrent)
       end as detail,
       s.held::float8 / nullif(s.max_concurrent, 0) as load
  from waiting_job
  left join alive_servers s on true
 order by array_position({{liveness.filters}}, s.filter), load, s.name, s.id

-- statement: read_log_page
-- Read the log lines of a job after a line, oldest first. They are read attempt by attempt, each by its index.
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

-- statement: list_server_lines_of_job
-- List what the control plane did with a job after a place, in order, like the `_server` log of an execution. The lines
-- are built from the attempts and the end of the job, so a single job has them as well as a step.
-- takes: job uuid, after bigint, limit bigint
-- returns: place bigint, at timestamptz, code text, step text|null, server uuid|null, line text
-- row: ServerLine
with lines as (
    select a.number::bigint as place, a.finished_at as at, j.step, a.server_id as server,
           case when a.state = 'RESUBMITTED' then 'JOB_RESUBMITTED'
                when a.state in ('REQUEUED', 'RELEASED') then 'JOB_REQUEUED'
                when a.state = 'FAILED' and (a.number < j.attempt_count or j.state = 'PENDING') then 'RETRY'
                when a.state = 'FAILED' and a.error ->> 'code' in ('WORKER_CRASHED', 'STEP_TIMEOUT') then a.error ->> 'code'
           end as code,
           format('attempt %%s: %%s: %%s', a.number, a.state, coalesce(nullif(a.reason, ''), a.error ->> 'message', '-')) as line
      from jobs_workerjob j join jobs_attempt a on a.job_id = j.id and a.finished_at is not null
     where j.id = %(job)s
     union all
    select j.attempt_count + 1, j.finished_at, j.step, null, 'NO_MATCHING_WORKER', j.error ->> 'message'
      from jobs_workerjob j
     where j.id = %(job)s and j.state = 'FAILED' and j.error ->> 'code' = 'NO_MATCHING_WORKER'
)
select place, at, code, step, server, line from lines
 where code is not null and place > %(after)s
 order by place
 limit %(limit)s

-- statement: find_log_lines_before
-- Find log lines of a job before a line, newest first, by stream or text (in any case). At most `looked_at` lines are
-- read: `looked` is their number, `first` and `last` are their ids (null: there are none). Without a match there is one
-- row with these.
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
-- Find log lines of a job after a line, oldest first, otherwise like `find_log_lines_before`.
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
