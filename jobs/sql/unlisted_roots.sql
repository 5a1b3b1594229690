-- Hold the trees of the executions whose steps a server holds.
select r.id
  from jobs_execution r
 where r.id in (
       select e.root_id
         from jobs_attempt a
         join jobs_workerjob j on j.id = a.job_id
         join jobs_execution e on e.id = j.execution_id
        where a.server_id = %(server)s and a.state in {{LIVE}})
 order by r.id
   for no key update
