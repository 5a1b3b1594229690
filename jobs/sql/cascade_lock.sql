-- Hold the trees of some executions: the lock of a root is the lock of all BLOCKED steps, of all steps that run a child,
-- and of all executions in its tree. It is taken before any job is.
select r.id
  from jobs_execution r
 where r.id in (select root_id from jobs_execution where id = any(%(executions)s::uuid[]))
 order by r.id
   for no key update
