-- statement: submit_executions
-- Store executions with their steps. Called in a transaction by `begin_executions`. Steps that depend on nothing are
-- PENDING at once, except steps with paths, which `resolve_steps` begins. An execution is left out if its key is known or if its parent step already has a child.
-- `begins` are steps that need no worker; the caller begins those. The first steps of an execution with limits are parked
-- until `start_executions`. A step that a restart keeps starts as
-- COMPLETED, and no step waits for it. If code of the earlier execution may still run, the same step of the new one
-- waits until it has stopped. `without_worker` are the `runners` that no worker has.
-- takes: executions jsonb, steps jsonb, edges jsonb, runners jsonb, staleness_multiplier float8,
--   unmatched_after float8, waiting_limit int, tag_sets_limit int, owner uuid
-- returns: place int, execution uuid, begins uuid|null, missing_worker jsonb|null, waiting bigint, tag_sets bigint, stored bigint,
--   without_worker jsonb|null, has_quota bool
-- row: SubmittedExecution
-- counted: stored_limit bigint
with planned as materialized (
    select uuid7() as id, p.* from jsonb_to_recordset(%(executions)s::jsonb) as p(
        place int, parent_step uuid, root uuid, owner uuid, namespace text, trigger uuid, trigger_chain uuid[], rerun_of uuid, name text, key text,
        fingerprint text, definition jsonb, inputs jsonb, open_steps int, timeout_seconds float8, outputs_from jsonb,
        deadline_seconds float8, on_deadline text, sealed bool, notify jsonb,
        limits jsonb, first_key text)
),
new_executions as (
    insert into jobs_execution (
        id, root_id, parent_step_id, owner_id, namespace, trigger_id, trigger_chain, rerun_of_id, name, key, fingerprint, definition, inputs,
        open_steps, timeout_seconds, outputs_from, deadline_seconds, deadline_at, on_deadline, sealed, notify,
        limits, parked_by)
    select id, coalesce(root, id), parent_step, owner, namespace, trigger, trigger_chain, rerun_of, name, key, decode(fingerprint, 'hex'),
           definition, inputs, open_steps, timeout_seconds, outputs_from,
           deadline_seconds, clock_timestamp() + make_interval(secs => deadline_seconds), {{on_deadline}}, sealed, notify,
           limits, case when limits is not null then jsonb_build_object('limit', first_key) end
      from planned order by key, place
        on conflict do nothing
 returning id, owner_id, namespace, parked_by
),
new_rechecks as (
    insert into jobs_limitrecheck (key) select distinct parked_by ->> 'limit' from new_executions where parked_by is not null
),
submitted as materialized (
    select uuid7() as id, new_executions.id as execution, new_executions.owner_id as owner,
           new_executions.namespace, planned.first_key, s.*
      from jsonb_to_recordset(%(steps)s::jsonb) as s(
               place int, position int, step text, is_hook bool, hook text, continue_on_failure bool, run_if_skipped bool,
               waits_for int, condition text, payload_from jsonb, reads text[], restart_of uuid, is_kept bool, fingerprint text,
               loop jsonb, {{job_columns_in_json}})
      join planned using (place)
      join new_executions on new_executions.id = planned.id
),
new_steps as (
    insert into jobs_workerjob (
        id, owner_id, namespace, execution_id, step, position, is_hook, hook, continue_on_failure, run_if_skipped, waits_for, condition,
        payload_from, reads, loop, restart_of_id, is_kept, passed_on, state, output, finished_at, fingerprint, available_at, parked_by, {{job_columns}})
    select id, owner, namespace, execution, step, position, is_hook, hook, continue_on_failure, run_if_skipped, waits_for, condition,
           payload_from, reads, loop, restart_of, is_kept, is_kept,
           case when is_kept then 'COMPLETED' when is_hook or waits_for > 0 or reads is not null then 'BLOCKED' else 'PENDING' end,
           case when is_kept then (select j.output from jobs_workerjob j where j.id = restart_of) end,
           case when is_kept then (select j.finished_at from jobs_workerjob j where j.id = restart_of) end,
           decode(fingerprint, 'hex'), greatest(available_at, clock_timestamp()),
           case when first_key is not null and waits_for = 0 and reads is null and not is_hook and not is_kept
                then jsonb_build_object('execution_limit', first_key) end, {{job_values}}
      from submitted order by place, position
),
new_dependencies as (
    insert into jobs_stepdependency (depends_on_id, step_id)
    select dependency.id, step.id
      from jsonb_to_recordset(%(edges)s::jsonb) as e(place int, step text, depends_on text)
      join submitted step on step.place = e.place and step.step = e.step
      join submitted dependency on dependency.place = e.place and dependency.step = e.depends_on
),
inherited_taken_attempts as (
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun, told_observed)
    select t.attempt_id, step.id, t.server_id, t.had_begun, t.told_observed
      from planned
     -- `offset 0` makes PostgreSQL look up each row by its key, also with poor statistics.
     cross join lateral (select * from jobs_workerjob j where j.execution_id = planned.rerun_of offset 0) before
     cross join lateral (select * from jobs_takenattempt t where t.job_id = before.id offset 0) t
      join submitted step on step.execution = planned.id and step.step = before.step and not step.is_kept
),
{{tags_without_worker}},
{{runners_without_worker}},
missing_workers as materialized (
    select execution, min({{missing_worker}}::text)::jsonb as missing_worker from submitted group by execution
),
submitter as materialized (
    select {{waiting_of_owner(s)}} as waiting, {{waiting_tag_sets(s)}} as tag_sets
-- counted:          , {{stored_of_owner(s)}} as stored
      from (select %(owner)s::uuid as owner) s
)
-- counted: , byte_changes as (
-- counted:     select new_executions.owner_id as owner, {{bytes_of_execution(planned)}} as bytes
-- counted:       from new_executions join planned using (id)
-- counted:      union all
-- counted:     select owner, {{submitted_bytes(submitted)}}
-- counted:                   + case when is_kept then (select coalesce(octet_length(j.output::text), 0) from jobs_workerjob j where j.id = restart_of)
-- counted:                          else 0 end
-- counted:       from submitted
-- counted: ),
-- counted: {{counted_bytes}}
select planned.place, new_executions.id as execution, step.id as begins,
       missing_workers.missing_worker,
       submitter.waiting, submitter.tag_sets,
       0::bigint
-- counted:        + submitter.stored + (select sum(bytes) from byte_changes)
       as stored,
       (select to_jsonb(array_agg(required_tags)) from runners_without_worker) as without_worker, {{has_quota(planned)}} as has_quota
  from planned cross join submitter
  join new_executions on new_executions.id = planned.id
  left join missing_workers on missing_workers.execution = new_executions.id
  left join submitted step on step.execution = new_executions.id and {{needs_no_worker(step)}} and step.waits_for = 0
        and step.reads is null and not step.is_kept and step.first_key is null

-- statement: list_steps_to_restart
-- List the steps of ended executions from which the steps of a restart continue, and whether they are kept. Steps that
-- depend on a step that did not complete are left out, because they begin again without the earlier run. `from_step`
-- is a step that runs again with its dependents although it completed. The lock keeps the rows from being deleted until
-- the restart is stored.
-- takes: executions uuid[], from_step text
-- returns: execution uuid, step text, job uuid, is_kept bool
-- row: StepToRestart
with recursive ended as materialized (
    select j.id, j.state = 'COMPLETED' and j.step is distinct from %(from_step)s::text as is_kept
      from jobs_workerjob j where j.execution_id = any(%(executions)s::uuid[]) and not j.is_hook
),
repeated_steps (id) as (
    select d.step_id
      from ended
     cross join lateral (select * from jobs_stepdependency d where d.depends_on_id = ended.id offset 0) d
     where not ended.is_kept
     union
    select d.step_id
      from repeated_steps
     cross join lateral (select * from jobs_stepdependency d where d.depends_on_id = repeated_steps.id offset 0) d
)
select j.execution_id as execution, j.step, j.id as job,
       j.state = 'COMPLETED' and j.step is distinct from %(from_step)s::text as is_kept
  from jobs_workerjob j
 where j.id = any(array(select id from ended where id not in (select id from repeated_steps)))
 order by j.id
   for key share

-- statement: list_children_to_begin
-- Set steps and jobs that are executions to RUNNING, and return the data from which the caller begins their children.
-- For steps the caller holds the lock of the root. The child of a job is a root itself. `restarts` is the earlier child
-- that a restarted step continues, if that child did not complete. `repeats` is the earlier child that runs again.
-- takes: steps uuid[]
-- returns: step uuid, action jsonb, payload jsonb, owner uuid|null, namespace text, root uuid, restarts uuid|null,
--   repeats uuid|null
-- row: ChildToBegin
update jobs_workerjob p
   set state = 'RUNNING'
 where p.id = any(%(steps)s::uuid[]) and p.state = 'PENDING' and p.parked_by is null and p.action ->> 'type' = 'execution' and p.loop is null
returning p.id as step, p.action, p.payload, p.owner_id as owner, p.namespace,
          (select e.root_id from jobs_execution e where e.id = p.execution_id) as root,
          (select c.id from jobs_execution c
            where c.parent_step_id = p.restart_of_id and c.state in {{EXECUTION_TERMINAL}} and c.state <> 'COMPLETED') as restarts,
          (select c.id from jobs_execution c
            where c.parent_step_id = coalesce(p.resubmission_of_id, (
                  select before.id from jobs_execution e
                    join jobs_workerjob before on before.execution_id = e.rerun_of_id and before.step = p.step
                   where e.id = p.execution_id))) as repeats
