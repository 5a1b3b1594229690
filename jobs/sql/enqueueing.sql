-- prepared statement: enqueue_jobs
-- Store jobs of the project's own code, in their order, and return their ids. They have no key, name no limits, and wait
-- for a worker however long it takes, so nothing has to be checked. `owner` is the digest of the token that owns them. If a
-- hold refuses one of them, none is stored. A job that rules limit is parked until somebody looks for free slots.
-- takes: jobs jsonb, owner bytea, namespace text
-- returns: id uuid, is_parked bool
-- row: EnqueuedJob
with submitted as materialized (
    select owner.id as owner, %(namespace)s::text as namespace, r.*
      from (select t.id from liveness_apitoken t where t.digest = %(owner)s) owner
     cross join jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, fingerprint text, {{job_columns_in_json}})
),
{{refusing_holds}},
new_jobs as (
    insert into jobs_workerjob (id, owner_id, namespace, fingerprint, available_at, pending_observed, parked_by, {{job_columns}})
    select uuid7(), owner, namespace, decode(fingerprint, 'hex'), clock_timestamp(), (select observed_now()),
           case when (select {{rules_add_keys}}) then parked_at_submission({{all_limits(submitted)}}, namespace, null) end,
           {{job_values}}
      from submitted
     where not exists (select from refusing_holds)
     order by place
 returning id, parked_by
),
new_rechecks as (
    insert into jobs_limitrecheck (key) select distinct parked_by ->> 'limit' from new_jobs where parked_by is not null
)
select id, parked_by is not null as is_parked from new_jobs
