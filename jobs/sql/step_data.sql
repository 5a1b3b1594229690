-- statement: read_paths
-- Return the canonical text of each path, null if PostgreSQL cannot read it.
-- takes: paths text[]
-- returns: path text, canonical text|null
select path, canonical_jsonpath(case when path ~ '^\s*(lax|strict)\s' then path else 'strict ' || path end) as canonical
  from unnest(%(paths)s::text[]) p(path)

-- statement: lock_steps_to_resolve
-- Lock the steps of these executions that wait only for their paths to be read. A hook is one of them when its execution
-- has ended. Called under `lock_roots`.
-- takes: executions uuid[]
-- returns: id uuid
-- row: StepToResolve
select j.id
  from jobs_workerjob j
  join jobs_execution e on e.id = j.execution_id
 where j.execution_id = any(%(executions)s::uuid[]) and j.state = 'BLOCKED' and j.reads is not null and j.waits_for = 0
   and case when j.is_hook then e.state in {{EXECUTION_TERMINAL}} else e.state = 'RUNNING' and e.parked_by is null end
 order by j.id
   for no key update of j

-- statement: resolve_steps
-- Begin these locked steps: evaluate their conditions and replace the references in their payloads. Called with a
-- timeout, because a path may take long.
-- takes: steps uuid[]
-- returns: id uuid, execution uuid, state text, needs_no_worker bool, is_loop bool
-- row: ResolvedStep
-- counted:
with contexts as materialized (
    -- The items of a loop read the context of its step, which is built once.
    select loops.execution, step_context(p.execution_id, loops.reads) as of_loop
      from (select distinct on (e.id) e.id as execution, e.parent_step_id, j.reads
              from jobs_workerjob j join jobs_execution e on e.id = j.execution_id and e.loop is not null
             where j.id = any(%(steps)s::uuid[])) loops
      join jobs_workerjob p on p.id = loops.parent_step_id
),
waiting as materialized (
    select j.id, j.owner_id, octet_length(r.payload::text) - octet_length(j.payload::text) as bytes, r.state, r.payload, r.items,
           r.error, contexts.execution is not null as is_item
      from jobs_workerjob j
      left join contexts on contexts.execution = j.execution_id
     cross join lateral resolved_step(
           case when contexts.of_loop is null then step_context(j.execution_id, j.reads)
                else contexts.of_loop || jsonb_build_object('item', j.payload -> 'item', 'index', j.payload -> 'index') end,
           j.condition, j.loop ->> 'for_each', j.action, j.payload,
           -- The item itself is in the payload already.
           case when contexts.of_loop is null then j.payload_from else j.payload_from - '/item' end) r
     where j.id = any(%(steps)s::uuid[])
),
resolved as (
    update jobs_workerjob j
       set state = waiting.state, payload = waiting.payload, error = waiting.error,
           loop = case when waiting.items is null then j.loop else j.loop || jsonb_build_object('items', waiting.items) end,
           finished_at = case when waiting.state <> 'PENDING' then clock_timestamp() end, pending_observed = observed_now(),
           available_at = case when waiting.is_item then j.available_at else greatest(j.available_at, clock_timestamp()) end
      from waiting
     where j.id = any(array[waiting.id])
 returning j.id, j.execution_id, j.step, j.state, {{needs_no_worker(j)}} and j.parked_by is null as needs_no_worker,
           j.loop is not null as is_loop
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'STEP_SKIPPED', step, format('%%s is skipped: its condition is false', step)
      from resolved where state = 'SKIPPED'
)
-- counted: , byte_changes as (
-- counted:     select owner_id as owner, bytes from waiting where bytes is not null
-- counted: ),
-- counted: {{counted_bytes}}
select id, execution_id as execution, state, needs_no_worker, is_loop from resolved

-- statement: fail_slow_step
-- End a step whose paths took too long, so that it cannot hold up the ends of other steps again. If `slow_steps` steps
-- before it were slow, it was not tried (null: it was).
-- takes: step uuid, seconds float8, slow_steps int
-- returns: id uuid, execution uuid, state text, needs_no_worker bool, is_loop bool
-- row: SlowStep
update jobs_workerjob j
   set state = 'FAILED', finished_at = clock_timestamp(),
       error = jsonb_build_object('code', case when j.condition is null then 'INPUT_NOT_AVAILABLE' else 'CONDITION_ERROR' end,
           'message', case when %(slow_steps)s::int is null
               then format('Reading the paths of this step took longer than %%s s', %(seconds)s::float8)
               else format('The paths of this step were not read, because those of %%s steps that began with it took '
                           'longer than %%s s each', %(slow_steps)s::int, %(seconds)s::float8) end)
 where j.id = %(step)s and j.state = 'BLOCKED'
returning j.id, j.execution_id as execution, j.state, false as needs_no_worker, false as is_loop

-- statement: read_outputs
-- Store the outputs of these executions, whose roots are locked. Called with a timeout, because a path may take long.
-- takes: executions uuid[]
-- returns: id uuid
with found as materialized (
    select e.id, r.value, r.problem
      from jobs_execution e
     cross join lateral resolved_references(e.definition -> 'outputs', e.outputs_from -> 'paths',
           step_context(e.id, array(select jsonb_array_elements_text(e.outputs_from -> 'reads'))), 'null') r
     where e.id = any(%(executions)s::uuid[]) and not {{outputs_are_known(e)}}
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select id, 'OUTPUT_NOT_AVAILABLE', '', 'Outputs: ' || problem from found where problem is not null
)
update jobs_execution e set outputs = found.value, outputs_from = e.outputs_from || '{"read": true}'
  from found
 where e.id = any(array[found.id])
returning e.id

-- statement: give_up_outputs
-- Let all outputs of an execution be null that are values of its steps or inputs, because their paths took too long.
-- takes: execution uuid, seconds float8
-- returns: id uuid
with given_up as (
    update jobs_execution e
       set outputs = (select value from resolved_references(e.definition -> 'outputs', e.outputs_from -> 'paths', '{}', 'null')),
           outputs_from = e.outputs_from || '{"read": true}'
     where e.id = %(execution)s and not {{outputs_are_known(e)}}
 returning e.id
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select id, 'OUTPUT_NOT_AVAILABLE', '', format('Reading the outputs took longer than %%s s, so they are null', %(seconds)s::float8)
      from given_up
)
select id from given_up
