-- How it stands, in one row. What lives is counted. What has ended may be millions: it is counted up to `counted`, and
-- beyond that the planner's statistics say about how many there are (`about`). Flagged are those that stand still.
with recursive {{tag_sets}},
{{unmatched}},
{{flagged}},
guessed as (
    select common.state, (c.reltuples * common.share)::bigint as jobs
      from pg_class c
      join pg_stats s on s.schemaname = c.relnamespace::regnamespace::text and s.tablename = c.relname
     cross join lateral unnest(s.most_common_vals::text::text[], s.most_common_freqs) as common (state, share)
     where c.oid = 'jobs_workerjob'::regclass and s.attname = 'state'
),
counted as (
    select state, count(*) as jobs, false as is_full from jobs_workerjob where state in {{OPEN}} group by state
    union all
    select state, found.jobs, found.jobs = %(counted)s
      from unnest(%(ended)s::text[]) ended (state)
     cross join lateral (
           select count(*) as jobs
             from (select from jobs_workerjob j
                    -- A range and this order, which job_by_state alone has: nothing else is to be walked over.
                    where j.state between ended.state and ended.state
                    order by j.state, j.id limit %(counted)s) few) found
),
figures as (
    select counted.state, is_full, case when is_full then greatest(guessed.jobs, counted.jobs) else counted.jobs end as jobs
      from counted left join guessed using (state)
)
select clock_timestamp() as now,
       clock.reading as observed, clock.witnessed,
       extract(epoch from clock_timestamp() - clock.moved_at)::float8 as observed_lag,
       extract(epoch from clock_timestamp() - clock.finished_at)::float8 as check_age, clock.took,
       extract(epoch from clock.finished_at)::float8 as finished,
       (select jsonb_object_agg(state, jobs) from figures where jobs > 0) as counts,
       (select jsonb_object_agg(flag, jobs) from (select flag, count(*) as jobs from flagged group by flag) f) as flags,
       (select jsonb_agg(state) from figures where is_full) as about,
       (select extract(epoch from clock_timestamp() - min(available_at))::float8
          from jobs_workerjob where state = 'PENDING' and available_at <= clock_timestamp()) as waiting,
       (select jsonb_agg(to_jsonb(brake) order by type) from liveness_brake brake where released_by is null) as brakes,
       (select to_jsonb(instance) from liveness_instance instance where maintenance_since is not null) as maintenance,
       {{liveness.unwritten}} as unwritten
  from liveness_clock clock
