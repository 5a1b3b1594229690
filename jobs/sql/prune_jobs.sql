-- Delete jobs with all that is theirs.
with gone_attempts as materialized (
    select id from jobs_attempt where job_id = any(%(ids)s::uuid[])
),
lines as (
    delete from jobs_logline where attempt_id in (select id from gone_attempts)
),
late as (
    delete from jobs_latereport where job_id = any(%(ids)s::uuid[])
),
tries as (
    delete from jobs_attempt where job_id = any(%(ids)s::uuid[])
),
edges as (
    delete from jobs_stepdependency where step_id = any(%(ids)s::uuid[])
),
gone as (
    delete from jobs_workerjob where id = any(%(ids)s::uuid[]) returning 1
)
select count(*) as deleted from gone
