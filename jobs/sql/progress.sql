-- How far running attempts have come; their jobs are held by report_jobs.sql.
with said as (
    select * from jsonb_to_recordset(%(progress)s::jsonb) as r(attempt uuid, progress float8, message text)
)
update jobs_attempt a
   set progress = coalesce(said.progress, a.progress), message = coalesce(said.message, a.message)
  from said, jobs_workerjob j, liveness_server s
 where a.id = said.attempt and {{fence}} and a.state = 'RUNNING'
returning a.id
