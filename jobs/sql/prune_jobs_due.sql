-- The next jobs in the order of their ids, how many of them are past their retention, and whether to look on. Steps go
-- with their executions.
select (array_agg(j.id order by j.id desc))[1] as last,
       count(*) filter (where j.finished_at < %(jobs)s and j.execution_id is null) as due,
       bool_or(j.created_at < %(jobs)s) as has_old
  from (select id, created_at, finished_at, execution_id from jobs_workerjob where id > %(after)s order by id limit %(batch)s) j
