-- They are EXPIRED.
with {{late}}
update jobs_workerjob j
   set state = 'EXPIRED', finished_at = clock_timestamp(),
       error = jsonb_build_object('code', 'EXPIRED', 'message', format('it was good until %%s', j.good_until))
  from late
 where j.id = late.id
returning j.id as job, j.state as job_state, j.error ->> 'message' as reason, j.execution_id as execution, j.kind
