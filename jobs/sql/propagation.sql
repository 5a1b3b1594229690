-- statement: lock_roots
-- Lock the roots of the trees that contain these executions. The lock of a root covers all executions of its tree, all
-- BLOCKED steps, and all steps that run without a worker. It must be taken before the lock of any job.
-- takes: executions uuid[]
-- returns: id uuid
select r.id
  from jobs_execution r
 where r.id in (select root_id from jobs_execution where id = any(%(executions)s::uuid[]))
 order by r.id
   for no key update

-- prepared statement: find_freed_executions
-- List executions with an ended step whose end can be propagated now, because its code has stopped.
-- takes: attempts uuid[]
-- returns: id uuid
select distinct j.execution_id as id
  from jobs_workerjob j
 where j.state in {{TERMINAL}} and not j.passed_on and j.execution_id is not null
   and not {{is_held_back(j)}}
   and (%(attempts)s::uuid[] is null or j.id in (select a.job_id from jobs_attempt a where a.id = any(%(attempts)s::uuid[])))

-- prepared statement: propagate_ends
-- Propagate what has ended in trees of executions, one round. Called under `lock_roots` until a round finds nothing.
-- Ends are found by state, so the same statement also repairs what a crash left behind.
-- takes: executions uuid[], roots uuid[], output_limit bigint
-- returns: what text, id uuid, execution uuid|null, state text|null, is_limited bool|null
-- row: PropagatedEnd
with recursive ended_jobs as materialized (
    select j.id, j.execution_id, j.step, j.is_hook, j.state, j.error,
           not j.is_hook and {{bars_dependents(j)}} as bars, {{cause_of(j)}} as cause
      from jobs_workerjob j
     where j.execution_id = any(%(executions)s::uuid[]) and j.state in {{TERMINAL}} and not j.passed_on
       -- While its code may still run, dependents and hooks wait, as a next attempt would.
       and not {{is_held_back(j)}}
),
propagated_jobs as (
    update jobs_workerjob j set passed_on = true where j.id = any(array(select id from ended_jobs))
),
dependents as materialized (
    -- No further step begins in an execution that is being cancelled.
    select d.step_id, ended_jobs.cause, e.parked_by,
           ended_jobs.bars and not (ended_jobs.cause is not null and step.run_if_skipped) as bars
      from ended_jobs
      join jobs_execution e on e.id = ended_jobs.execution_id and e.state = 'RUNNING'
     cross join lateral (select * from jobs_stepdependency d where d.depends_on_id = ended_jobs.id offset 0) d
     cross join lateral (select j.run_if_skipped from jobs_workerjob j where j.id = d.step_id offset 0) step
),
barred_steps (id, cause) as (
    select step_id, cause from dependents where bars
     union
    select d.step_id, barred_steps.cause
      from barred_steps
     cross join lateral (select * from jobs_stepdependency d where d.depends_on_id = barred_steps.id offset 0) d
     cross join lateral (select j.run_if_skipped from jobs_workerjob j where j.id = d.step_id offset 0) step
     where not (barred_steps.cause is not null and step.run_if_skipped)
),
skipped_steps as (
    -- The next round looks for steps that run although this one was skipped. None may below a step that failed.
    update jobs_workerjob j
       set state = 'SKIPPED', finished_at = clock_timestamp(), passed_on = barred.cause is null,
           error = jsonb_build_object('code', 'STEP_SKIPPED', 'message', 'A step that it depends on did not complete')
               || case when barred.cause is null then '{}' else jsonb_build_object('cause', barred.cause) end
      from (select id, case when bool_and(cause is not null) then min(cause) end as cause
              from barred_steps group by id) barred
     where j.id = any(array[barred.id]) and j.state = 'BLOCKED'
 returning j.id, j.execution_id, j.step, j.position, barred.cause
),
freed_steps as (
    select step_id as id, count(*) as steps, (array_agg(parked_by))[1] as parked_by from dependents
     where step_id not in (select id from barred_steps)
     group by step_id
),
updated_steps as (
    update jobs_workerjob j
       set waits_for = j.waits_for - freed_steps.steps,
           state = case when j.waits_for <= freed_steps.steps and j.reads is null then 'PENDING' else j.state end,
           -- A first step may end before its execution starts, for example because it expires.
           parked_by = case when j.waits_for <= freed_steps.steps and j.reads is null and freed_steps.parked_by is not null
                            then jsonb_build_object('execution_limit', freed_steps.parked_by -> 'limit') end,
           pending_observed = observed_now(), available_at = greatest(j.available_at, clock_timestamp())
      from freed_steps
     where j.id = any(array[freed_steps.id]) and j.state = 'BLOCKED'
 returning j.id, j.execution_id, j.state, j.parked_by is null and {{needs_no_worker(j)}} as needs_no_worker, j.waits_for = 0 and j.reads is not null as has_paths
),
ended_steps as (
    select execution_id as id, sum(steps)::int as steps
      from (select execution_id, 1 as steps from ended_jobs where not is_hook
             union all
            select execution_id, 1 from skipped_steps where cause is null
             union all
            -- An execution that is sealed or cancelled now may end although no step ends now.
            select e.id, 0 from jobs_execution e
             where e.id = any(%(executions)s::uuid[]) and e.open_steps = 0 and e.state not in {{EXECUTION_TERMINAL}}) steps
     group by execution_id
),
finished_executions as materialized (
    select e.id, {{outputs_are_known(e)}} as ends
      from ended_steps
      join jobs_execution e on e.id = ended_steps.id and e.open_steps <= ended_steps.steps
       and (e.sealed or e.state = 'CANCELLING')
     where e.state not in {{EXECUTION_TERMINAL}}
),
ending_executions as materialized (
    select e.id, e.name, e.created_at, e.parent_step_id is not null as is_child,
           e.root_id, e.limits is not null as is_limited, clock_timestamp() as at,
           case when e.state = 'CANCELLING' and not {{failed_fast(e)}} then 'CANCELLED'
                when failed_steps.count > 0 then 'FAILED'
                else 'COMPLETED' end as state,
           case when e.state = 'CANCELLING' then e.error
                when failed_steps.count > 0 then jsonb_build_object(
                    'code', case when e.loop is null then 'STEPS_FAILED' else 'ITEMS_FAILED' end,
                    'message', format(case when e.loop is null then '%%s of its steps did not complete: %%s'
                                           else '%%s of its items did not complete: %%s' end, failed_steps.count, failed_steps.named),
                    'steps', failed_steps.steps) end as error,
           coalesce(failed_steps.steps, '[]') as failed_steps,
           e.state = 'CANCELLING' and not {{timed_out(e)}} as is_called_off
      from finished_executions
      join jobs_execution e on e.id = any(array[finished_executions.id])
     cross join lateral (
           select count(*) as count,
                  string_agg(step, ', ' order by finished_at) filter (where place <= 10) as named,
                  jsonb_agg(jsonb_build_object('step', step, 'state', state, 'error', error) order by finished_at)
                      filter (where place <= 100) as steps
             from (select j.step, j.state, j.finished_at,
                          -- Shortened, because every hook gets it. The step has the full error.
                          case when j.error is not null then jsonb_build_object(
                              'code', j.error ->> 'code', 'message', left(j.error ->> 'message', 1000)) end as error,
                          row_number() over (order by j.finished_at) as place
                     from jobs_workerjob j
                    where j.execution_id = e.id and not j.is_hook and not j.continue_on_failure
                      and j.state in {{TERMINAL}} and j.state not in ('COMPLETED', 'SKIPPED')) failures
           ) failed_steps
     where finished_executions.ends
),
updated_executions as (
    update jobs_execution e
       set open_steps = e.open_steps - ended_steps.steps,
           state = coalesce(ending_executions.state, e.state),
           finished_at = ending_executions.at,
           error = case when ending_executions.id is null then e.error else ending_executions.error end
      from ended_steps left join ending_executions using (id)
     where e.id = any(array[ended_steps.id]) and e.state not in {{EXECUTION_TERMINAL}}
 returning e.id, e.root_id, e.namespace, e.name, e.state, e.outputs, e.trigger_chain
),
freed_slots as (
    -- An execution whose code may still run keeps its slots until `free_slots_of_executions`.
    delete from jobs_limitslot slot
     where slot.execution_id = any(array(select e.id from ending_executions e where e.is_limited and not {{may_run_code(e)}}))
 returning slot.key
),
{{recheck_freed_keys}},
new_signals as (
    -- Executions that are steps of others send none.
    insert into jobs_signal (namespace, name, body, trigger_chain)
    select namespace, 'ended:' || name, jsonb_build_object('id', id, 'state', state, 'outputs', outputs), trigger_chain
      from updated_executions where state in {{EXECUTION_TERMINAL}} and root_id = id
),
updated_hooks as (
    update jobs_workerjob h
       set state = case when not {{runs_after(h, ending_executions)}} then 'SKIPPED' when h.reads is null then 'PENDING' else 'BLOCKED' end,
           waits_for = 0,
           finished_at = case when not {{runs_after(h, ending_executions)}} then ending_executions.at end,
           passed_on = not {{runs_after(h, ending_executions)}},
           payload = h.payload || jsonb_build_object(
               'execution', jsonb_build_object('id', ending_executions.id, 'name', ending_executions.name),
               'failed', ending_executions.failed_steps, 'error', ending_executions.error - 'steps',
               'duration_seconds', extract(epoch from ending_executions.at - ending_executions.created_at)),
           pending_observed = observed_now(), available_at = greatest(h.available_at, ending_executions.at)
      from ending_executions
     where h.execution_id = any(array[ending_executions.id]) and h.is_hook and h.state = 'BLOCKED'
 returning h.id, h.execution_id, h.state = 'BLOCKED' as has_paths
),
ended_children as materialized (
    -- A child that has ended ends the step that started it.
    select c.id, c.name, c.state, c.parent_step_id, c.error, c.outputs, size.bytes,
           case when c.state = 'COMPLETED' then jsonb_array_length(coalesce(c.inputs -> 'items', c.definition -> 'steps')) - (
               select count(*) from jobs_workerjob j
                where j.execution_id = c.id and not j.is_hook and j.state in {{TERMINAL}}) else 0 end as missing
      from jobs_execution c
     cross join lateral (
           select coalesce(sum(octet_length(j.output::text)), 0) as bytes from jobs_workerjob j
            where j.execution_id = c.id and j.state = 'COMPLETED' and not j.is_hook and c.state = 'COMPLETED'
              and c.outputs is null) size
     where c.root_id = any(%(roots)s::uuid[]) and c.state in {{EXECUTION_TERMINAL}} and not c.passed_on
       and c.parent_step_id is not null
),
propagated_children as (
    update jobs_execution c set passed_on = true from ended_children where c.id = any(array[ended_children.id])
),
updated_parents as (
    update jobs_workerjob p
       set state = ended_children.state, finished_at = clock_timestamp(),
           output = case when ended_children.state = 'COMPLETED' and ended_children.bytes <= %(output_limit)s
                              and ended_children.missing <= 0 then coalesce(ended_children.outputs,
               case when p.loop is not null then (
                   select jsonb_agg(j.output order by j.position) from jobs_workerjob j where j.execution_id = ended_children.id) end,
               (select jsonb_object_agg(j.step, j.output) from jobs_workerjob j
                 where j.execution_id = ended_children.id and j.state = 'COMPLETED' and not j.is_hook), '{}') end,
           error = case ended_children.state
               when 'COMPLETED' then case
                   when ended_children.missing > 0 then jsonb_build_object(
                   'code', 'RESULT_NOT_AVAILABLE', 'child', ended_children.id,
                   'message', format('Child execution %%s completed, but the results of %%s of its steps are missing',
                                     ended_children.name, ended_children.missing))
                   when ended_children.bytes > %(output_limit)s then jsonb_build_object(
                   'code', 'RESULT_NOT_AVAILABLE', 'child', ended_children.id,
                   'message', format('The outputs of child execution %%s have %%s bytes: read them there',
                                     ended_children.name, ended_children.bytes)) end
               when 'FAILED' then jsonb_build_object(
                   'code', coalesce(ended_children.error ->> 'code', 'WORKER_CRASHED'),
                   'message', case when p.loop is not null then ended_children.error ->> 'message'
                                   else format('Child execution %%s failed', ended_children.name) end,
                   'child', ended_children.id)
               when 'CANCELLED' then jsonb_build_object(
                   'code', 'TASK_CANCELLED',
                   'message', format('Child execution %%s was cancelled', ended_children.name), 'child', ended_children.id) end
      from ended_children
     where p.id = any(array[ended_children.parent_step_id]) and p.state = 'RUNNING'
 returning p.id, p.execution_id
),
failing_loops as (
    -- An item that has failed stops its loop at once, also while its code may still run.
    select e.id, e.root_id, (array_agg(j.step order by j.finished_at))[1] as failed
      from jobs_workerjob j
      join jobs_execution e on e.id = j.execution_id and e.state = 'RUNNING' and e.loop -> 'fail_fast' = 'true'
     where j.execution_id = any(%(executions)s::uuid[]) and j.state in {{TERMINAL}} and not j.passed_on
       and j.state not in ('COMPLETED', 'SKIPPED')
     group by e.id
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'STEP_SKIPPED', step, format('%%s is skipped: a step that it depends on did not complete', step)
      from (select * from skipped_steps order by execution_id, position) skipped_steps
     union all
    select execution_id, 'HOOK_FAILED', step,
           format('The hook %%s ended %%s: %%s', step, state, coalesce(error ->> 'message', '-'))
      from ended_jobs where is_hook and state not in ('COMPLETED', 'SKIPPED')
)
select 'begins' as what, id, execution_id as execution, state, null::bool as is_limited from updated_steps where state = 'PENDING' and needs_no_worker
 union all
select 'returns', id, execution_id, null, null from updated_parents
 union all
select 'returns', id, execution_id, null, null from skipped_steps where cause is not null
 union all
select 'resolves', id, execution_id, null, null from updated_steps where has_paths
 union all
select 'resolves', id, execution_id, null, null from updated_hooks where has_paths
 union all
select 'fails fast', root_id, id, failed, null from failing_loops where id not in (select id from ending_executions)
 union all
select 'reads outputs', id, id, null, null from finished_executions where not ends
 union all
select 'frees', e.id, e.id, null, null from jobs_execution e
 where e.id in (select execution_id from ended_jobs) and e.state = 'RUNNING' and e.loop ? 'max_parallel'
 union all
select case when is_child then 'ended child' else 'ended' end, id, id, state, is_limited from ending_executions
