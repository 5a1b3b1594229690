-- The next executions in the order of their ids, how many trees of them are past their retention, and whether to look on.
select (array_agg(e.id order by e.id desc))[1] as last,
       count(*) filter (where {{prune_execution_old}}) as due,
       bool_or(e.created_at < %(executions)s) as has_old
  from (select id, root_id, created_at, finished_at from jobs_execution where id > %(after)s order by id limit %(batch)s) e
