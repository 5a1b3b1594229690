-- The next servers in the order of their ids, how many of them are past their retention, and whether to look on.
-- Attempts that are about to go with their jobs keep no server. (A scalar subquery, so that it is looked up by
-- index and never hashed from the whole table.)
select (array_agg(s.id order by s.id desc))[1] as last,
       count(*) filter (where {{prune_server_old}} and (
           select a.id from jobs_attempt a join jobs_workerjob j on j.id = a.job_id
            where a.server_id = s.id and {{prune_job_old}} is not true limit 1) is null) as due,
       bool_or(s.created_at < %(servers)s) as has_old
  from (select id, state, state_changed_at, created_at from liveness_server
         where id > %(after)s order by id limit %(batch)s) s
