-- Hold the trees of executions whose steps' attempts are reported on.
select r.id
  from jobs_execution r
 where r.id in (
       select e.root_id
         from jobs_attempt a
         join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
         join jobs_execution e on e.id = j.execution_id
        where a.id = any(%(attempts)s::uuid[]) and a.server_id = %(server)s)
 order by r.id
   for no key update
