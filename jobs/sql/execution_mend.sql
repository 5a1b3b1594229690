-- Back to before anything was passed on in an open execution, so that passing on comes to what is right; its root is
-- held. The steps that are executions and never began are for the caller to begin.
with stray as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp(), passed_on = j.is_hook
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'CANCELLING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not (j.is_hook and {{timed_out}})
),
waiting as (
    update jobs_workerjob j
       set waits_for = (select count(*) from jobs_stepdependency d where d.step_id = j.id)
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'RUNNING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not j.is_hook
 returning j.id
),
ended as (
    update jobs_workerjob j set passed_on = false
     where j.execution_id = %(execution)s and j.state in {{TERMINAL}} and not j.is_hook
),
counted as (
    update jobs_execution e
       set open_steps = (select count(*) from jobs_workerjob j where j.execution_id = e.id and not j.is_hook)
     where e.id = %(execution)s and e.state not in {{OVER}}
 returning e.id, e.state
),
children as (
    update jobs_execution c set passed_on = false
      from jobs_workerjob p
     where p.execution_id = %(execution)s and p.state = 'RUNNING' and c.parent_step_id = p.id and c.state in {{OVER}}
),
noted as (
    insert into jobs_executionevent (execution_id, code, line)
    select id, 'EXECUTION_REPAIRED', 'It stood still though steps of it had ended; moved on' from counted
)
select counted.id, j.id as child_of
  from counted
  left join jobs_workerjob j
    on j.execution_id = counted.id and counted.state = 'RUNNING' and j.state = 'PENDING'
   and j.required_tags = array['']
