-- Store jobs in the order given. One whose key is known is left out: the caller finds the job that has it.
with said as materialized (
    select uuid7() as id, r.* from jsonb_to_recordset(%(jobs)s::jsonb) as r(
        place int, key text, fingerprint text, action jsonb, payload jsonb, tags text[], required_tags text[],
        priority int, timeout_seconds float8, on_worker_lost text, available_at timestamptz)
),
stored as (
    insert into jobs_workerjob (
        id, owner_id, key, fingerprint, action, payload, tags, required_tags, priority, timeout_seconds,
        on_worker_lost, available_at)
    select id, %(owner)s, key, decode(fingerprint, 'hex'), action, payload, tags, required_tags, priority,
           timeout_seconds, on_worker_lost, coalesce(available_at, clock_timestamp())
      from said order by place
        on conflict (owner_id, key) where key is not null do nothing
 returning id
)
select said.place, stored.id from stored join said using (id)
