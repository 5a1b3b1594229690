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
   and case when j.is_hook then e.state in {{EXECUTION_TERMINAL}} else e.state = 'RUNNING' end
 order by j.id
   for no key update of j

-- statement: resolve_steps
-- Begin these locked steps: evaluate their conditions and replace the references in their payloads. Called with a
-- timeout, because a path may take long.
-- takes: steps uuid[]
-- returns: id uuid, execution uuid, state text, needs_no_worker bool
-- row: ResolvedStep
-- counted:
with waiting as materialized (
    select j.id, j.owner_id, octet_length(r.payload::text) - octet_length(j.payload::text) as bytes, r.state, r.payload, r.error
      from jobs_workerjob j
     cross join lateral resolved_step(step_context(j.execution_id, j.reads), j.condition, j.action, j.payload, j.payload_from) r
     where j.id = any(%(steps)s::uuid[])
),
resolved as (
    update jobs_workerjob j
       set state = waiting.state, payload = waiting.payload, error = waiting.error,
           finished_at = case when waiting.state <> 'PENDING' then clock_timestamp() end,
           pending_observed = observed_now(), available_at = greatest(j.available_at, clock_timestamp())
      from waiting
     where j.id = any(array[waiting.id])
 returning j.id, j.execution_id, j.step, j.state, {{needs_no_worker(j)}} as needs_no_worker
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
select id, execution_id as execution, state, needs_no_worker from resolved

-- statement: fail_slow_step
-- End a step whose paths took too long, so that it cannot hold up the ends of other steps again. If `slow_steps` steps
-- before it were slow, it was not tried (null: it was).
-- takes: step uuid, seconds float8, slow_steps int
-- returns: id uuid, execution uuid, state text, needs_no_worker bool
-- row: SlowStep
update jobs_workerjob j
   set state = 'FAILED', finished_at = clock_timestamp(),
       error = jsonb_build_object('code', case when j.condition is null then 'INPUT_NOT_AVAILABLE' else 'CONDITION_ERROR' end,
           'message', case when %(slow_steps)s::int is null
               then format('Reading the paths of this step took longer than %%s s', %(seconds)s::float8)
               else format('The paths of this step were not read, because those of %%s steps that began with it took '
                           'longer than %%s s each', %(slow_steps)s::int, %(seconds)s::float8) end)
 where j.id = %(step)s and j.state = 'BLOCKED'
returning j.id, j.execution_id as execution, j.state, false as needs_no_worker
