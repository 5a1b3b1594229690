-- Steps that wait or are live though their execution is being cancelled are cancelled, a batch of one tree, whose root is
-- held (cascade_lock.sql).
with stray as materialized (
    select j.id
      from jobs_execution e
      join jobs_workerjob j on j.execution_id = e.id
     where e.state = 'CANCELLING' and e.root_id = %(root)s and {{halted}}
     order by j.id
     limit %(batch)s
       for no key update of j
)
update jobs_workerjob j
   set {{cancelling}}
  from stray
 where j.id = stray.id
returning j.execution_id as execution
