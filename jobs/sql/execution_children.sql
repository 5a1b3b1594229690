-- Steps that are executions themselves begin: what the child of each is to be.
update jobs_workerjob p
   set state = 'RUNNING'
  from jobs_execution e
 where p.id = any(%(steps)s::uuid[]) and e.id = p.execution_id and p.state = 'PENDING'
returning p.id as step, p.action, p.payload, e.root_id as root, p.owner_id as owner
