-- statement: submit_jobs
-- Store jobs, by their keys, so that two who hand in the same ones never wait for each other in a ring. One whose key is
-- known is left out: the caller finds the job that has it. One that needs a worker and finds none says what is in the
-- way, for the caller to take all back.
-- takes: jobs jsonb, owner uuid, namespace text, kind text, staleness_multiplier float8, waiting_limit int
-- returns: place int, id uuid, missing_worker jsonb|null, is_execution bool, waiting bigint
-- row: SubmittedJob
with submitted as materialized (
    select uuid7() as id, %(namespace)s::text as namespace, r.*
      from jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, key text, fingerprint text, {{job_columns_in_json}})
),
new_jobs as (
    insert into jobs_workerjob (id, owner_id, namespace, kind, key, fingerprint, available_at, {{job_columns}})
    select id, %(owner)s, namespace, %(kind)s, key, decode(fingerprint, 'hex'), coalesce(available_at, clock_timestamp()),
           {{job_columns}}
      from submitted order by key, place
        on conflict (owner_id, key) where key is not null do nothing
 returning id
),
{{tags_without_worker}}
select submitted.place, new_jobs.id, {{missing_worker}} as missing_worker, submitted.action ->> 'type' = 'execution' as is_execution,
       {{waiting_of_owner}} as waiting
  from new_jobs join submitted using (id)
