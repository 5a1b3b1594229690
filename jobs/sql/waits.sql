/* unmatched job j waits for a worker however long that takes: it is to, or one that had it is gone, and more may come
   (a scalar subquery: looked up by index, never hashed from the whole table) */
(j.unmatched = 'wait' or %(unmatched_after)s::float8 is null
 or %(wait_after_loss)s and j.attempt_count > 0 and coalesce((
    select true from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.job_id = j.id and a.state in {{INTERRUPTED}} and a.reason <> 'not_allowed' and s.state not in {{ALIVE}}
     limit 1), false))
