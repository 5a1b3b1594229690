-- Jobs of their own that are executions and stand still: the child never began, or has ended.
with torn as (
    select j.id, null::uuid as child from jobs_workerjob j
     where j.state = 'PENDING' and j.required_tags = array[''] and j.execution_id is null
     union all
    select j.id, c.id from jobs_workerjob j join jobs_execution c on c.parent_step_id = j.id
     where j.state = 'RUNNING' and j.execution_id is null and c.state in {{OVER}}
)
select id, child from torn where id > %(after)s order by id limit %(batch)s
