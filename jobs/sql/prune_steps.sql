-- The steps of trees of executions, a batch.
select j.id
  from jobs_execution e join jobs_workerjob j on j.execution_id = e.id
 where e.root_id = any(%(roots)s::uuid[])
 order by j.id
 limit %(batch)s
   for update of j
