-- The code of these claimed attempts begins; their jobs are held by report_jobs.sql.
with begun as (
    update jobs_workerjob j
       set state = 'RUNNING'
      from jobs_attempt a, liveness_server s
     where a.id = any(%(started)s::uuid[]) and {{fence}} and j.state = 'CLAIMED' and not {{is_stopped}}
       -- A claim that was slow may not have seen what was taken from another meanwhile.
       and not {{held_back}}
 returning a.id
)
update jobs_attempt a
   set state = 'RUNNING', started_at = clock_timestamp(), started_observed = observed_now(),
       alive_observed = observed_now()
  from begun
 where a.id = begun.id
returning a.id
