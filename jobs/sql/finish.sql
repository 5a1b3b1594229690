-- Attempts end because their worker says so. The end of a step or of a trigger's job has consequences, which belong
-- into the same transaction: it waits for a caller that sees to them.
with said as (
    select * from jsonb_to_recordset(%(ended)s::jsonb)
        as r(attempt uuid, event text, output jsonb, error jsonb, reason text)
),
held as materialized (
    select j.id as job_id, a.id, j.state as was, said.event, said.output, said.error,
           coalesce(said.reason, said.error ->> 'code', '') as reason, 'server' as actor,
           s.id as server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from said, jobs_attempt a, jobs_workerjob j, liveness_server s
     where a.id = said.attempt and {{fence}}
       and {{consequences}}
       and case said.event
               when 'COMPLETED' then j.state = 'RUNNING'
               when 'FAILED' then j.state = 'RUNNING'
               when 'CANCELLED' then j.cancel_requested_at is not null
               -- Its code never begins: start.sql did not let it.
               when 'STARTED' then j.state = 'CLAIMED' and {{is_stopped}}
               else true
           end
     order by j.id
       for no key update of j
),
{{settle}}
{{each}}
