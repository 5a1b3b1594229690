-- What became of each attempt and of its job.
select v.id as attempt, v.job_id as job, v.server_id as server, v.attempt_state, v.job_state, v.reason,
       v.execution_id as execution, v.kind
  from verdict v
