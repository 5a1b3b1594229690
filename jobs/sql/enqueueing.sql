-- statement: enqueue_jobs
-- Store jobs of the project's own code, in their order, and return their ids. They have no key, no limits, and wait for
-- a worker however long it takes, so nothing has to be checked. `owner` is the digest of the token that owns them. If a
-- hold refuses one of them, none is stored.
-- takes: jobs jsonb, owner bytea, namespace text
-- returns: id uuid
with submitted as materialized (
    select owner.id as owner, %(namespace)s::text as namespace, r.*
      from (select t.id from liveness_apitoken t where t.digest = %(owner)s) owner
     cross join jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, fingerprint text, {{job_columns_in_json}})
),
{{refusing_holds}}
insert into jobs_workerjob (id, owner_id, namespace, fingerprint, available_at, pending_observed, {{job_columns}})
select uuid7(), owner, namespace, decode(fingerprint, 'hex'), clock_timestamp(), (select observed_now()), {{job_values}}
  from submitted
 where not exists (select from refusing_holds)
 order by place
returning id
