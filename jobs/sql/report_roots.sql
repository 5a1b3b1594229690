-- Hold the trees of executions whose steps' attempts are reported on.
select r.id
  from jobs_execution r
 where r.id = any(array(
       select e.root_id from jobs_execution e
        where e.id = any(array(
              select j.execution_id from jobs_workerjob j
               where j.id = any({{reported_jobs}}) and j.attempt_id = any(%(attempts)s::uuid[])))))
 order by r.id
   for no key update
