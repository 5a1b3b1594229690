-- Cancel a job, once.
update jobs_workerjob j
   set {{cancelling}}
 where j.id = %(job)s and {{interrupt_reach}} and {{consequences}} and (j.state = 'PENDING' or j.attempt_id is not null)
   and j.cancel_requested_at is null
returning j.id
