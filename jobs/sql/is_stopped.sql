/* job j is a step of an execution that is being cancelled or has ended: nothing of it begins any more but hooks */
(j.execution_id is not null and not j.is_hook and exists (
    select from jobs_execution e where e.id = j.execution_id and e.state <> 'RUNNING'))
