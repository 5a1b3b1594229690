-- Lines of a job after a line, oldest first; attempt by attempt, so that each is read by its index.
select l.id, l.at, a.number as attempt, l.stream, l.line
  from jobs_attempt a
 cross join lateral (
       select * from jobs_logline l where l.attempt_id = a.id and l.id > %(after)s order by l.id limit %(limit)s
       ) l
 where a.job_id = %(job)s and (%(attempt)s::int is null or a.number = %(attempt)s)
 order by l.id
 limit %(limit)s
