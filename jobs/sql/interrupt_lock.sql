-- A job stands still while the statement after this one acts on it: that begins anew, so it also sees an attempt that
-- has just been claimed. The state is what the caller is told when nothing applies.
select j.id as job, j.state, j.cancel_requested_at is not null as is_cancelling, j.execution_id as execution, j.kind,
       j.attempt_id is not null as is_held,
       (select c.id from jobs_execution c where c.parent_step_id = j.id) as child
  from jobs_workerjob j
 where j.id = %(job)s and {{interrupt_reach}}
   for no key update
