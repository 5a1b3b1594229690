-- Hold the trees of executions of a span that are past their retention. Who else holds one keeps it until the next time.
select e.id from jobs_execution e
 where e.id > %(after)s and e.id <= %(last)s and {{prune_execution_old}}
 order by e.id
   for update skip locked
