-- Those of the live attempts whose end moves an execution or a trigger on.
select a.id
  from jobs_attempt a
 cross join lateral (
       select from jobs_workerjob j
        where j.id = a.job_id and (j.execution_id is not null or j.kind <> 'TASK') offset 0
       ) moving
 where a.id = any(%(attempts)s::uuid[]) and a.server_id = %(server)s and a.state in {{LIVE}}
