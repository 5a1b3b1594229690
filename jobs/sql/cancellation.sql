-- statement: find_overdue_executions
-- List running executions that are past their timeout, by observed time. The timeout of an execution on hold stands still, and
-- that of an execution with limits begins with its start.
-- takes: after uuid, batch bigint
-- returns: id uuid, timeout_seconds float8
-- row: OverdueExecution
with late as materialized (
    -- A subquery is evaluated once, so the index is read only up to that time.
    select e.*, e.id as execution_id from jobs_execution e
     where e.state = 'RUNNING' and e.timeout_seconds is not null
       and e.started_observed + e.timeout_seconds <= (select reading from liveness_clock)
)
select e.id, e.timeout_seconds
  from late e
 where e.id > %(after)s and e.parked_by is null
   and not exists (select from jobs_hold hold where {{is_in_force(hold)}} and {{covers_execution(hold, e)}})
 order by e.id
 limit %(batch)s

-- statement: cancel_executions
-- Set RUNNING executions and their RUNNING children to CANCELLING, and cancel their BLOCKED steps. Hooks stay if the
-- cause is the timeout of the execution. Called under `lock_roots`; `halt_steps` then cancels the other steps.
-- takes: error jsonb, executions uuid[]
-- returns: id uuid
with recursive executions_to_stop (id, error) as (
    select e.id, %(error)s::jsonb from jobs_execution e
     where e.id = any(%(executions)s::uuid[]) and e.state = 'RUNNING'
     union
    select c.id, jsonb_build_object('code', 'PARENT_CANCELLED', 'message', 'Its parent execution is cancelled')
      from executions_to_stop
      join jobs_workerjob p on p.execution_id = executions_to_stop.id
      join jobs_execution c on c.parent_step_id = p.id and c.state = 'RUNNING'
),
stopped_executions as (
    update jobs_execution e
       set state = 'CANCELLING', cancel_requested_at = clock_timestamp(), error = executions_to_stop.error
      from (select id, (array_agg(error order by error ->> 'code'))[1] as error from executions_to_stop group by id) executions_to_stop
     where e.id = any(array[executions_to_stop.id])
 returning e.id, {{timed_out(e)}} as calls_hooks
),
new_events as (
    insert into jobs_executionevent (execution_id, code, line)
    select id, %(error)s::jsonb ->> 'code', %(error)s::jsonb ->> 'message' from executions_to_stop
     where error ->> 'code' in ('EXECUTION_TIMEOUT', 'DEADLINE_MISSED')
),
cancelled_jobs as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp(), passed_on = j.is_hook
      from stopped_executions
     where j.execution_id = any(array[stopped_executions.id]) and j.state = 'BLOCKED' and not (j.is_hook and stopped_executions.calls_hooks)
)
select id from stopped_executions

-- statement: find_halting_trees
-- List the roots of trees with a CANCELLING execution whose steps still wait or run.
-- takes: after uuid, batch bigint
-- returns: id uuid
select r.id
  from jobs_execution r
 where r.id > %(after)s and r.id in (
       select e.root_id
         from jobs_execution e
         join jobs_workerjob j on j.execution_id = e.id
        where e.state = 'CANCELLING' and {{halts_with_execution(j)}})
 order by r.id
 limit %(batch)s

-- statement: halt_steps
-- Cancel a batch of steps that still wait or run in CANCELLING executions of one tree. A step that runs is only asked
-- to stop. Called under `lock_roots` for the `root`.
-- takes: root uuid, batch bigint
-- returns: execution uuid
with steps_to_halt as materialized (
    select j.id
      from jobs_execution e
      join jobs_workerjob j on j.execution_id = e.id
     where e.state = 'CANCELLING' and e.root_id = %(root)s and {{halts_with_execution(j)}}
     order by j.id
     limit %(batch)s
       for no key update of j
)
update jobs_workerjob j
   set {{cancellation_of(j)}}
  from steps_to_halt
 where j.id = any(array[steps_to_halt.id])
returning j.execution_id as execution

-- statement: cancel_blocked_step
-- Cancel one BLOCKED step and record who did it. Called under `lock_roots`.
-- takes: job uuid, action text, actor text, note text
-- returns: id uuid
with acted_on as (
    update jobs_workerjob j
       set state = 'CANCELLED', finished_at = clock_timestamp()
     where j.id = %(job)s and j.state = 'BLOCKED'
 returning j.id
),
{{new_action_event}}
select id from acted_on
