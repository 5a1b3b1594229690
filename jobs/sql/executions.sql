-- statement: submit_executions
-- Store executions with their steps: those that depend on nothing are PENDING at once. One whose key is known, or whose
-- parent step has its child, is left out. The steps that are executions themselves are for the caller to start.
-- takes: executions jsonb, steps jsonb, edges jsonb, staleness_multiplier float8, waiting_limit int, owner uuid
-- returns: place int, execution uuid, child_of uuid|null, missing_worker jsonb|null, waiting bigint
-- row: SubmittedExecution
with planned as materialized (
    select uuid7() as id, p.* from jsonb_to_recordset(%(executions)s::jsonb) as p(
        place int, parent_step uuid, root uuid, owner uuid, namespace text, trigger uuid, rerun_of uuid, name text, key text,
        fingerprint text, definition jsonb, inputs jsonb, open_steps int, timeout_seconds float8)
),
new_executions as (
    insert into jobs_execution (
        id, root_id, parent_step_id, owner_id, namespace, trigger_id, rerun_of_id, name, key, fingerprint, definition, inputs,
        open_steps, timeout_seconds)
    select id, coalesce(root, id), parent_step, owner, namespace, trigger, rerun_of, name, key, decode(fingerprint, 'hex'),
           definition, inputs, open_steps, timeout_seconds
      from planned order by key, place
        on conflict do nothing
 returning id, owner_id, namespace
),
submitted as materialized (
    select uuid7() as id, new_executions.id as execution, new_executions.owner_id as owner,
           new_executions.namespace, s.*
      from jsonb_to_recordset(%(steps)s::jsonb) as s(
               place int, position int, step text, is_hook bool, continue_on_failure bool, waits_for int,
               fingerprint text, {{job_columns_in_json}})
      join planned using (place)
      join new_executions on new_executions.id = planned.id
),
new_steps as (
    insert into jobs_workerjob (
        id, owner_id, namespace, execution_id, step, position, is_hook, continue_on_failure, waits_for, state, fingerprint,
        available_at, {{job_columns}})
    select id, owner, namespace, execution, step, position, is_hook, continue_on_failure, waits_for,
           case when is_hook or waits_for > 0 then 'BLOCKED' else 'PENDING' end, decode(fingerprint, 'hex'),
           coalesce(available_at, clock_timestamp()), {{job_columns}}
      from submitted order by place, position
),
new_dependencies as (
    insert into jobs_stepdependency (depends_on_id, step_id)
    select dependency.id, step.id
      from jsonb_to_recordset(%(edges)s::jsonb) as e(place int, step text, depends_on text)
      join submitted step on step.place = e.place and step.step = e.step
      join submitted dependency on dependency.place = e.place and dependency.step = e.depends_on
),
{{tags_without_worker}}
select planned.place, new_executions.id as execution, step.id as child_of,
       (select min({{missing_worker}}::text) from submitted where submitted.execution = new_executions.id)::jsonb as missing_worker,
       {{waiting_of_owner}} as waiting
  from planned
  join new_executions on new_executions.id = planned.id
  left join submitted step on step.execution = new_executions.id and step.action ->> 'type' = 'execution' and step.waits_for = 0

-- statement: list_children_to_begin
-- Steps, and jobs, that are executions themselves begin: what the child of each is to be. That of a job is a root.
-- takes: steps uuid[]
-- returns: step uuid, action jsonb, payload jsonb, owner uuid|null, namespace text, root uuid
-- row: ChildToBegin
update jobs_workerjob p
   set state = 'RUNNING'
 where p.id = any(%(steps)s::uuid[]) and p.state = 'PENDING' and p.action ->> 'type' = 'execution'
returning p.id as step, p.action, p.payload, p.owner_id as owner, p.namespace,
          (select e.root_id from jobs_execution e where e.id = p.execution_id) as root
