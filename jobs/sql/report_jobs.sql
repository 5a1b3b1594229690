-- Hold the jobs whose attempts are reported on. A statement of its own: the next ones then see them, their executions and
-- their lines as they are by now, and the same report sent twice at once is applied once.
select j.id
  from jobs_attempt a join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
 where a.id = any(%(attempts)s::uuid[]) and a.server_id = %(server)s
 order by j.id
   for no key update of j
