-- How many attempts ended how, by server: which they were stands in their rows.
select v.attempt_state as state, v.job_state, v.server_id::text as server, v.reason, count(*) as jobs, {{passed_on}},
       (array_agg(v.id))[1:100] as attempts
  from verdict v
 group by v.attempt_state, v.job_state, v.server_id, v.reason
