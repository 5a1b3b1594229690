-- statement: find_torn_executions
-- Executions that stand still though something of them has ended. Whatever ends passes that on in its own transaction,
-- so what can be seen here is torn. (Scalar subqueries, so that they are looked up by index and never hashed from the
-- whole table.)
-- takes: after uuid, batch bigint
-- returns: id uuid
with recursive {{pending_tag_sets}},
torn (id) as (
    select j.execution_id from jobs_workerjob j
     where j.state in {{TERMINAL}} and not j.passed_on and not j.is_hook and j.execution_id is not null
     union
    select e.id from jobs_execution e
     where e.state not in {{EXECUTION_TERMINAL}}
       and (select j.id from jobs_workerjob j
             where j.execution_id = e.id and j.state not in {{TERMINAL}} and not j.is_hook limit 1) is null
     union
    select j.execution_id from jobs_workerjob j
     where j.state = 'BLOCKED' and not j.is_hook
       and (select dependency.id from jobs_stepdependency d join jobs_workerjob dependency on dependency.id = d.depends_on_id
             where d.step_id = j.id and dependency.state not in {{TERMINAL}} limit 1) is null
     union
    select j.execution_id from tag_sets join jobs_workerjob j using (namespace, required_tags)
     where j.state = 'PENDING' and j.required_tags = array['']
     union
    select p.execution_id from jobs_workerjob p join jobs_execution c on c.parent_step_id = p.id
     where p.state = 'RUNNING' and p.execution_id is not null and c.state in {{EXECUTION_TERMINAL}}
)
select e.id
  from torn join jobs_execution e using (id)
 where e.state not in {{EXECUTION_TERMINAL}} and e.id > %(after)s
 order by e.id
 limit %(batch)s

-- statement: find_torn_jobs
-- Jobs of their own that are executions and stand still: the child never began, or has ended.
-- takes: after uuid, batch bigint
-- returns: id uuid, child uuid|null
with recursive {{pending_tag_sets}},
torn as (
    select j.id, null::uuid as child from tag_sets join jobs_workerjob j using (namespace, required_tags)
     where j.state = 'PENDING' and j.required_tags = array[''] and j.execution_id is null
     union all
    select j.id, c.id from jobs_workerjob j join jobs_execution c on c.parent_step_id = j.id
     where j.state = 'RUNNING' and j.execution_id is null and c.state in {{EXECUTION_TERMINAL}}
)
select id, child from torn where id > %(after)s order by id limit %(batch)s

-- statement: find_torn_evaluations
-- Jobs of triggers that have ended without what follows from that.
-- takes: after uuid, batch bigint
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.state in {{TERMINAL}} and not j.passed_on and j.kind = 'TRIGGER' and j.execution_id is null
   and j.id > %(after)s
 order by j.id
 limit %(batch)s

-- statement: mend_execution
-- Back to before anything was passed on in an open execution, so that passing on comes to what is right; its root is
-- held. The steps that are executions and never began are for the caller to begin.
-- takes: execution uuid
-- returns: id uuid, child_of uuid|null
with stray_steps as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp(), passed_on = j.is_hook
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'CANCELLING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not (j.is_hook and {{timed_out(e)}})
),
waiting_steps as (
    update jobs_workerjob j
       set waits_for = (select count(*) from jobs_stepdependency d where d.step_id = j.id)
      from jobs_execution e
     where e.id = %(execution)s and e.state = 'RUNNING' and j.execution_id = e.id and j.state = 'BLOCKED'
       and not j.is_hook
 returning j.id
),
ended_steps as (
    update jobs_workerjob j set passed_on = false
     where j.execution_id = %(execution)s and j.state in {{TERMINAL}} and not j.is_hook
),
counted_execution as (
    update jobs_execution e
       set open_steps = (select count(*) from jobs_workerjob j where j.execution_id = e.id and not j.is_hook)
     where e.id = %(execution)s and e.state not in {{EXECUTION_TERMINAL}}
 returning e.id, e.state
),
ended_children as (
    update jobs_execution c set passed_on = false
      from jobs_workerjob p
     where p.execution_id = %(execution)s and p.state = 'RUNNING' and c.parent_step_id = p.id and c.state in {{EXECUTION_TERMINAL}}
),
new_events as (
    insert into jobs_executionevent (execution_id, code, line)
    select id, 'EXECUTION_REPAIRED', 'It stood still though steps of it had ended; moved on' from counted_execution
)
select counted_execution.id, j.id as child_of
  from counted_execution
  left join jobs_workerjob j
    on j.execution_id = counted_execution.id and counted_execution.state = 'RUNNING' and j.state = 'PENDING'
   and j.required_tags = array['']

-- statement: mend_job
-- The end of an execution is to be heard once more by the job whose run it was; its root is held.
-- takes: child uuid
-- returns: id uuid
update jobs_execution c set passed_on = false where c.id = %(child)s and c.state in {{EXECUTION_TERMINAL}} returning c.id
