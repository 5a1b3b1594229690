-- Steps that wait or are live though their execution is being cancelled are cancelled, a batch. No root is held: whoever
-- holds one of these jobs may be waiting for it.
with stray as materialized (
    select j.id
      from jobs_execution e
      join jobs_workerjob j on j.execution_id = e.id
     where e.state = 'CANCELLING' and (%(roots)s::uuid[] is null or e.root_id = any(%(roots)s::uuid[]))
       and (j.state = 'PENDING' or j.state in {{LIVE}} and j.attempt_id is not null)
       and j.cancel_requested_at is null and not j.is_hook
     order by j.id
     limit %(batch)s
       for update of j
)
update jobs_workerjob j
   set {{cancelling}}
  from stray
 where j.id = stray.id
returning j.execution_id as execution
