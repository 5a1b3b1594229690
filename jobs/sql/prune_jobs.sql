-- Delete jobs with their attempts and late reports.
with late as (
    delete from jobs_latereport where job_id = any(%(ids)s::uuid[])
),
tries as (
    delete from jobs_attempt where job_id = any(%(ids)s::uuid[])
),
gone as (
    delete from jobs_workerjob where id = any(%(ids)s::uuid[]) returning 1
)
select count(*) as deleted from gone
