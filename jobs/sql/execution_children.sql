-- Steps, and jobs, that are executions themselves begin: what the child of each is to be. That of a job is a root.
update jobs_workerjob p
   set state = 'RUNNING'
 where p.id = any(%(steps)s::uuid[]) and p.state = 'PENDING' and p.action ->> 'type' = 'execution'
returning p.id as step, p.action, p.payload, p.owner_id as owner,
          (select e.root_id from jobs_execution e where e.id = p.execution_id) as root
