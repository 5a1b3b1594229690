-- Delete trees of executions that have no steps any more.
with events as (
    delete from jobs_executionevent v using jobs_execution e
     where e.root_id = any(%(roots)s::uuid[]) and v.execution_id = e.id
),
gone as (
    delete from jobs_execution e where e.root_id = any(%(roots)s::uuid[]) returning e.id = e.root_id as is_root
)
select count(*) filter (where is_root) as deleted from gone
