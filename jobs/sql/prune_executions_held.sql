-- Hold the trees of executions of a span that are past their retention. Who else holds one keeps it until the next time.
select e.id from jobs_execution e
 where e.id > %(after)s and e.id <= %(last)s and e.finished_at < %(executions)s and e.root_id = e.id
 order by e.id
   for update skip locked
