-- A job stands still while the statement after this one acts on it: that begins anew, so it also sees an attempt that
-- has just been claimed. The state is what the caller is told when nothing applies.
select j.state, j.cancel_requested_at is not null as is_cancelling
  from jobs_workerjob j
 where j.id = %(job)s and {{interrupt_reach}}
   for no key update
