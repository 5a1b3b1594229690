-- Executions are to end, with their children: what has not begun is CANCELLED, for the rest see execution_halt.sql.
-- Their roots are held (cascade_lock.sql).
with recursive stopping (id, error) as (
    select e.id, %(error)s::jsonb from jobs_execution e
     where e.id = any(%(executions)s::uuid[]) and e.state = 'RUNNING'
     union
    select c.id, jsonb_build_object('code', 'PARENT_CANCELLED', 'message', 'The execution that it is a step of ends')
      from stopping
      join jobs_workerjob p on p.execution_id = stopping.id
      join jobs_execution c on c.parent_step_id = p.id and c.state = 'RUNNING'
),
stopped as (
    update jobs_execution e
       set state = 'CANCELLING', cancel_requested_at = clock_timestamp(), error = stopping.error
      from (select id, (array_agg(error order by error ->> 'code'))[1] as error from stopping group by id) stopping
     where e.id = stopping.id
 returning e.id, {{timed_out}} as calls_hooks
),
noted as (
    insert into jobs_executionevent (execution_id, code, line)
    select id, %(error)s::jsonb ->> 'code', %(error)s::jsonb ->> 'message' from stopping
     where error ->> 'code' = 'EXECUTION_TIMEOUT'
),
cancelled as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp(), passed_on = j.is_hook
      from stopped
     where j.execution_id = stopped.id and j.state = 'BLOCKED' and not (j.is_hook and stopped.calls_hooks)
)
select id from stopped
