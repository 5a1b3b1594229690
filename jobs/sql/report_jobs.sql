-- Hold the jobs whose attempts are reported on. A statement of its own: the next ones then see them, their executions and
-- their lines as they are by now, and the same report sent twice at once is applied once.
select j.id
  from jobs_workerjob j
 where j.id = any({{reported_jobs}}) and j.attempt_id = any(%(attempts)s::uuid[])
 order by j.id
   for no key update
