-- Hold the tree of executions that a job is a step in.
select r.id
  from jobs_execution r
 where r.id in (select e.root_id from jobs_workerjob j join jobs_execution e on e.id = j.execution_id
                 where j.id = %(job)s and {{interrupt_reach}})
   for no key update
