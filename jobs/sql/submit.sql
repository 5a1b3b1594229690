-- Store jobs, by their keys, so that two who hand in the same ones never wait for each other in a ring. One whose key is
-- known is left out: the caller finds the job that has it. One that needs a worker and finds none says what is in the
-- way, for the caller to take all back.
with said as materialized (
    select uuid7() as id, r.*
      from jsonb_to_recordset(%(jobs)s::jsonb) as r(place int, key text, fingerprint text, {{job_said}})
),
stored as (
    insert into jobs_workerjob (id, owner_id, kind, key, fingerprint, available_at, {{job_fields}})
    select id, %(owner)s, %(kind)s, key, decode(fingerprint, 'hex'), coalesce(available_at, clock_timestamp()),
           {{job_fields}}
      from said order by key, place
        on conflict (owner_id, key) where key is not null do nothing
 returning id
),
{{deserted}}
select said.place, stored.id, {{in_the_way}} as in_the_way, said.action ->> 'type' = 'execution' as is_execution,
       {{waiting}} as waiting
  from stored join said using (id)
