-- step: stored_jobs(submitted) -> new_jobs, new_rechecks
-- Store the `submitted` jobs of the project's own code in their order, unless there are `refusing_holds`. A job that rules limit
-- is parked until somebody looks for free slots.
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
{{stored_jobs}}
select id, parked_by is not null as is_parked from new_jobs

-- prepared statement: enqueue_job
-- Store one job as enqueue_jobs does, but nothing while a hold refuses any jobs; then enqueue_jobs decides. PostgreSQL reads
-- typed parameters faster than JSON. Null: the field is missing.
-- takes: name text, action jsonb, payload jsonb, tags text[], required_tags text[], priority int, timeout_seconds float8,
-- on_worker_lost text, unmatched text, max_retries int, retry_delay_seconds float8, retry_backoff text, retry_on text[],
-- isolation text, worker_slots int, traceparent text, fingerprint text, owner bytea, namespace text
-- returns: id uuid, is_parked bool
-- row: EnqueuedJob
with submitted as not materialized (
    select t.id as owner, %(namespace)s::text as namespace, 0 as place, %(fingerprint)s::text as fingerprint,
           %(name)s::text as name, %(action)s::jsonb as action, %(payload)s::jsonb as payload, %(tags)s::text[] as tags,
           %(required_tags)s::text[] as required_tags, %(priority)s::int as priority,
           %(timeout_seconds)s::float8 as timeout_seconds, %(on_worker_lost)s::text as on_worker_lost,
           %(unmatched)s::text as unmatched, %(max_retries)s::int as max_retries,
           %(retry_delay_seconds)s::float8 as retry_delay_seconds, %(retry_backoff)s::text as retry_backoff,
           %(retry_on)s::text[] as retry_on, %(isolation)s::text as isolation, %(worker_slots)s::int as worker_slots,
           %(traceparent)s::text as traceparent, null::timestamptz as good_until, null::text as unique_key,
           null::jsonb as limits, null::float8 as deadline_seconds, null::text as on_deadline, null::jsonb as notify
      from liveness_apitoken t
     where t.digest = %(owner)s
),
refusing_holds as not materialized (
    select from jobs_hold hold where hold.mode = 'refuse' and {{is_in_force(hold)}}
),
{{stored_jobs}}
select id, parked_by is not null as is_parked from new_jobs
