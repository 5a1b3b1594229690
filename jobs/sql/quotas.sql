-- statement: lock_quotas
-- Lock the quotas of a namespace until the end of the transaction. It runs in the round trip of `spend_quotas`, which then
-- counts all jobs of earlier submissions.
-- takes: namespace text
-- returns: locked bool
-- row: LockedQuotas
select true as locked from (select pg_advisory_xact_lock(hashtextextended('quotas ' || %(namespace)s, 0))) locked

-- prepared statement: spend_quotas
-- Count a submission of `jobs` jobs, already stored, against the quotas of their namespace. There is a row for each
-- namespace whose rule has a quota: the jobs that wait, counted up to the quota, and the submissions that were left
-- before this one. The caller rolls back if they are too few. Celery tasks do not count, because their broker holds them.
-- takes: namespace text, jobs bigint
-- returns: max_waiting int|null, waiting bigint, submissions_per_minute int|null, left_over float8|null
-- row: SpentQuota
with quotas as materialized (
    select r.namespace,
           (array_agg(r.max_waiting order by p.place) filter (where r.max_waiting is not null))[1] as max_waiting,
           (array_agg(r.submissions_per_minute order by p.place) filter (where r.submissions_per_minute is not null))[1]
               as submissions_per_minute
      from unnest(limit_patterns('namespace:' || %(namespace)s)) with ordinality p (pattern, place)
      join jobs_limitrule r on r.pattern = p.pattern
     where r.namespace in ('default', %(namespace)s)
     group by r.namespace
),
most as materialized (select coalesce(max(max_waiting) + 1, 0) as jobs from quotas),
-- The orders make PostgreSQL read the indexes job_to_claim and job_parked_of_namespace, not the jobs of other namespaces.
waiting as materialized (
    select count(*) as jobs
      from ((select 1 from jobs_workerjob j
              where {{is_claimable(j)}} and j.namespace = %(namespace)s and j.kind <> 'CELERY'
              order by j.namespace, j.required_tags, j.priority desc, j.turn, j.available_at, j.id
              limit (select jobs from most))
             union all
            (select 1 from jobs_workerjob j
              where {{is_parked(j)}} and j.namespace = %(namespace)s
              order by j.namespace
              limit (select jobs from most))) counted
),
buckets as materialized (
    select quotas.namespace, least(submissions_per_minute, coalesce(
               b.tokens + submissions_per_minute / 60.0 * greatest(0, extract(epoch from clock_timestamp() - b.at)),
               submissions_per_minute))::float8 as tokens
      from quotas
      left join jobs_limitbucket b on b.namespace = quotas.namespace and b.key = {{submissions_key}}
     where submissions_per_minute is not null
),
spent as (
    insert into jobs_limitbucket as b (namespace, key, tokens, at)
    select namespace, {{submissions_key}}, tokens - %(jobs)s::bigint, clock_timestamp() from buckets
        on conflict (namespace, key) do update set tokens = excluded.tokens, at = excluded.at
)
select quotas.max_waiting, waiting.jobs as waiting, quotas.submissions_per_minute, buckets.tokens as left_over
  from quotas cross join waiting left join buckets using (namespace)
 order by quotas.namespace
