-- A step that waits for others is CANCELLED. The root of its execution is held.
update jobs_workerjob j
   set state = 'CANCELLED', finished_at = clock_timestamp()
 where j.id = %(job)s and j.state = 'BLOCKED'
returning j.id
