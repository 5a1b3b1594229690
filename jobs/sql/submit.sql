-- Store jobs in the order given. One whose key is known is left out: the caller finds the job that has it.
-- One that needs a worker and finds none (a full one counts: it will have room) is marked for the caller to take all back.
with said as materialized (
    select uuid7() as id, r.* from jsonb_to_recordset(%(jobs)s::jsonb) as r(
        place int, key text, fingerprint text, action jsonb, payload jsonb, tags text[], required_tags text[],
        priority int, timeout_seconds float8, on_worker_lost text, unmatched text, max_retries int,
        retry_delay_seconds float8, retry_backoff text, retry_on text[], good_until timestamptz,
        available_at timestamptz, require_worker bool)
),
stored as (
    insert into jobs_workerjob (
        id, owner_id, key, fingerprint, action, payload, tags, required_tags, priority, timeout_seconds,
        on_worker_lost, unmatched, max_retries, retry_delay_seconds, retry_backoff, retry_on, good_until, available_at)
    select id, %(owner)s, key, decode(fingerprint, 'hex'), action, payload, tags, required_tags, priority,
           timeout_seconds, on_worker_lost, unmatched, max_retries, retry_delay_seconds, retry_backoff, retry_on,
           good_until, coalesce(available_at, clock_timestamp())
      from said order by place
        on conflict (owner_id, key) where key is not null do nothing
 returning id
),
deserted as materialized (
    select wanted.required_tags from (select distinct required_tags from said where require_worker) wanted
     where not exists (
        select from liveness_server s
         where {{schedulable}} and s.max_concurrent > 0 and wanted.required_tags <@ s.tags)
)
select said.place, stored.id, said.require_worker and said.required_tags in (select * from deserted) as is_deserted
  from stored join said using (id)
