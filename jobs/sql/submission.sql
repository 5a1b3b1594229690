-- statement: submit_jobs
-- Store jobs, by their keys, so that two who hand in the same ones never wait for each other in a ring. One whose key is
-- known is left out: the caller finds the job that has it. One that needs a worker and finds none says what is in the
-- way, for the caller to take all back. What was stored is shown as it is kept; `left_out` is of it what has more bytes
-- of JSON than `largest` (null: nothing). `without_worker` are those of the `runners` that no worker takes. Where it says
-- `only_if_clear`, nothing is stored if anything is in the way: then it is the whole transaction of a job that is alone.
-- takes: jobs jsonb, runners jsonb, owner uuid, namespace text, kind text, staleness_multiplier float8,
--   unmatched_after float8, waiting_limit int, largest int, only_if_clear bool
-- returns: place int, id uuid, missing_worker jsonb|null, is_execution bool, waiting bigint, action jsonb,
--   payload jsonb|null, created_at timestamptz, available_at timestamptz, good_until timestamptz|null, left_out text[]|null,
--   without_worker jsonb|null
-- row: SubmittedJob
with submitted as materialized (
    select uuid7() as id, %(namespace)s::text as namespace, r.*
      from jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, key text, fingerprint text, {{job_columns_in_json}})
),
{{tags_without_worker}},
{{runners_without_worker}},
new_jobs as (
    insert into jobs_workerjob (id, owner_id, namespace, kind, key, fingerprint, available_at, pending_observed, {{job_columns}})
    select id, %(owner)s, namespace, %(kind)s, key, decode(fingerprint, 'hex'), coalesce(available_at, clock_timestamp()),
           (select observed_now()), {{job_values}}
      from submitted
     where not %(only_if_clear)s
        or not exists (select from tags_without_worker) and not exists (select from runners_without_worker)
           and coalesce({{waiting_of_owner}} < %(waiting_limit)s, true)
     order by key, place
        on conflict (owner_id, key) where key is not null do nothing
 returning id, action, payload, created_at, available_at, good_until
)
select submitted.place, new_jobs.id, {{missing_worker}} as missing_worker, submitted.action ->> 'type' = 'execution' as is_execution,
       {{waiting_of_owner}} as waiting,
       case when too_large.action then jsonb_build_object('type', new_jobs.action -> 'type') else new_jobs.action end as action,
       case when not too_large.payload then new_jobs.payload end as payload,
       new_jobs.created_at, new_jobs.available_at, new_jobs.good_until,
       nullif(array_remove(array[case when too_large.action then 'action' end,
                                 case when too_large.payload then 'payload' end], null), '{}') as left_out,
       (select to_jsonb(array_agg(required_tags)) from runners_without_worker) as without_worker
  from new_jobs join submitted using (id)
 cross join lateral (
       select coalesce(octet_length(new_jobs.action::text) > %(largest)s, false) as action,
              coalesce(octet_length(new_jobs.payload::text) > %(largest)s, false) as payload) too_large
