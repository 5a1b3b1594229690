-- The trees in which steps wait or are live though their execution is being cancelled.
select r.id
  from jobs_execution r
 where r.id > %(after)s and r.id in (
       select e.root_id
         from jobs_execution e
         join jobs_workerjob j on j.execution_id = e.id
        where e.state = 'CANCELLING' and {{halted}})
 order by r.id
 limit %(batch)s
