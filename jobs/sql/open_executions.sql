-- statement: list_steps_before
-- List these steps of an execution and all steps that they depend on, directly or not, with their dependencies.
-- takes: execution uuid, steps text[]
-- returns: step text, type text, needs text[]
-- row: StepBefore
with recursive before (id) as (
    select j.id from jobs_workerjob j where j.execution_id = %(execution)s and j.step = any(%(steps)s::text[])
     union
    select d.depends_on_id
      from before
     cross join lateral (select * from jobs_stepdependency d where d.step_id = before.id offset 0) d
)
select j.step, j.action ->> 'type' as type,
       array(select needed.step from jobs_stepdependency d
              cross join lateral (select n.step from jobs_workerjob n where n.id = d.depends_on_id offset 0) needed
              where d.step_id = j.id) as needs
  from before
 cross join lateral (select * from jobs_workerjob j where j.id = before.id and not j.is_hook offset 0) j

-- statement: add_steps
-- Store more steps of an open execution. Called under `lock_roots`. A step waits for the steps that it depends on and
-- whose ends have not been propagated. `is_barred` is true if one of them has failed or was skipped; the caller then
-- skips the step (`skip_added_steps`), with the `cause`. `begins` is true for a step that needs no worker and may begin.
-- takes: execution uuid, owner uuid, namespace text, steps jsonb, edges jsonb, runners jsonb, staleness_multiplier float8,
--   unmatched_after float8, waiting_limit int, tag_sets_limit int
-- returns: id uuid, begins bool, is_barred bool, cause text|null, has_paths bool, missing_worker jsonb|null, waiting bigint,
--   tag_sets bigint, stored bigint, without_worker jsonb|null, has_quota bool
-- row: AddedStep
-- counted: stored_limit bigint
with submitted as materialized (
    select uuid7() as id, %(owner)s::uuid as owner, %(namespace)s::text as namespace, s.*
      from jsonb_to_recordset(%(steps)s::jsonb) as s(
               position int, step text, continue_on_failure bool, run_if_skipped bool, condition text,
               payload_from jsonb, reads text[], loop jsonb, definition jsonb, fingerprint text, {{job_columns_in_json}})
),
edges as materialized (
    select step.id as step, coalesce(new.id, known.id) as depends_on, coalesce(known.passed_on, false) as has_ended,
           coalesce(known.passed_on and known.bars, false) and not (known.cause is not null and step.run_if_skipped) as bars,
           known.cause
      from jsonb_to_recordset(%(edges)s::jsonb) as e(step text, depends_on text)
      join submitted step on step.step = e.step
      left join submitted new on new.step = e.depends_on
      -- `offset 0` makes PostgreSQL look up each row by its key, also with poor statistics.
      left join lateral (
           select j.id, j.passed_on, {{bars_dependents(j)}} as bars, {{cause_of(j)}} as cause
             from jobs_workerjob j
            where j.execution_id = %(execution)s and j.step = e.depends_on and new.id is null offset 0) known on true
),
needs as materialized (
    select step, count(*) filter (where not has_ended) as open, bool_or(bars) as is_barred,
           case when bool_and(cause is not null) filter (where bars) then min(cause) filter (where bars) end as cause
      from edges group by step
),
placed as materialized (
    select submitted.*, coalesce(needs.open, 0) as waits_for, coalesce(needs.is_barred, false) as is_barred, needs.cause
      from submitted left join needs on needs.step = submitted.id
),
parking as materialized (
    -- An execution that waits for its slots keeps its first steps parked.
    select case when e.parked_by is not null then jsonb_build_object('execution_limit', e.parked_by -> 'limit') end as parked_by
      from jobs_execution e where e.id = %(execution)s
),
new_steps as (
    insert into jobs_workerjob (
        id, owner_id, namespace, execution_id, step, position, continue_on_failure, run_if_skipped, waits_for, condition,
        payload_from, reads, loop, definition, state, fingerprint, available_at, parked_by, {{job_columns}})
    select id, owner, namespace, %(execution)s, step, position, continue_on_failure, run_if_skipped, waits_for, condition,
           payload_from, reads, loop, definition,
           case when is_barred or waits_for > 0 or reads is not null then 'BLOCKED' else 'PENDING' end,
           decode(fingerprint, 'hex'), greatest(available_at, clock_timestamp()),
           case when not is_barred and waits_for = 0 and reads is null then parking.parked_by end, {{job_values}}
      from placed submitted cross join parking order by position
),
new_dependencies as (
    insert into jobs_stepdependency (depends_on_id, step_id) select depends_on, step from edges
),
counted_execution as (
    update jobs_execution e set open_steps = e.open_steps + (select count(*) from submitted) where e.id = %(execution)s
),
{{tags_without_worker}},
{{runners_without_worker}},
submitter as materialized (
    select {{waiting_of_owner(s)}} as waiting, {{waiting_tag_sets(s)}} as tag_sets
-- counted:          , {{stored_of_owner(s)}} as stored
      from (select %(owner)s::uuid as owner) s
)
-- counted: , byte_changes as (
-- counted:     select owner, {{submitted_bytes(submitted)}} + octet_length(definition::text) as bytes from submitted
-- counted: ),
-- counted: {{counted_bytes}}
select placed.id, {{needs_no_worker(placed)}} and placed.waits_for = 0 and placed.reads is null and not placed.is_barred
       and parking.parked_by is null as begins,
       placed.is_barred, placed.cause, placed.reads is not null and placed.waits_for = 0 as has_paths,
       null::jsonb as missing_worker, submitter.waiting, submitter.tag_sets,
       0::bigint
-- counted:        + submitter.stored + (select sum(bytes) from byte_changes)
       as stored,
       (select to_jsonb(array_agg(required_tags)) from runners_without_worker) as without_worker,
       {{has_quota(placed)}} as has_quota
  from placed cross join submitter cross join parking

-- statement: skip_added_steps
-- Skip new steps that depend on a step that failed or was skipped before. `propagate_ends` skips the steps below them.
-- Called under `lock_roots`, after `add_steps`.
-- takes: steps jsonb
-- returns: id uuid
with skipped_steps as (
    update jobs_workerjob j
       set state = 'SKIPPED', finished_at = clock_timestamp(),
           error = jsonb_build_object('code', 'STEP_SKIPPED', 'message', 'A step that it depends on did not complete')
               || case when barred.cause is null then '{}' else jsonb_build_object('cause', barred.cause) end
      from jsonb_to_recordset(%(steps)s::jsonb) as barred(id uuid, cause text)
     where j.id = any(array[barred.id]) and j.state = 'BLOCKED'
 returning j.id, j.execution_id, j.step
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'STEP_SKIPPED', step, format('%%s is skipped: a step that it depends on did not complete', step)
      from skipped_steps
)
select id from skipped_steps

-- statement: seal_execution
-- Seal an open execution. Called under `lock_roots`.
-- takes: execution uuid
-- returns: id uuid
update jobs_execution e set sealed = true
 where e.id = %(execution)s and not e.sealed and e.state = 'RUNNING'
returning e.id
