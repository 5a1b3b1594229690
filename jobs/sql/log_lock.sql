-- Hold the jobs whose code wrote lines. A statement of its own: the next one then sees every line of a call that was
-- under way, so the same report sent twice at once is stored once.
select j.id
  from jobs_attempt a join jobs_workerjob j on j.id = a.job_id and j.attempt_id = a.id
 where a.id = any(%(logged)s::uuid[]) and a.server_id = %(server)s
 order by j.id
   for no key update of j
