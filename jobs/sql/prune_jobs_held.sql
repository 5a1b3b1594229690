-- Hold the jobs of a span that are past their retention (only ended ones have a finished_at), so that nothing
-- comes to refer to them. Who else holds one keeps it until the next time.
select j.id from jobs_workerjob j
 where j.id > %(after)s and j.id <= %(last)s and j.finished_at < %(jobs)s and j.execution_id is null
 order by j.id
   for update skip locked
