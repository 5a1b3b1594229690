-- Executions past their timeout, by observed time.
select e.id, e.timeout_seconds
  from jobs_execution e, liveness_clock clock
 where e.state = 'RUNNING' and e.started_observed + e.timeout_seconds <= clock.reading and e.id > %(after)s
 order by e.id
 limit %(batch)s
