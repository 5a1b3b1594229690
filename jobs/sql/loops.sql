-- statement: begin_loops
-- Begin loops: set their steps to RUNNING, and store a child execution of each with one step for each item of its list.
-- Items beyond `max_parallel` are parked. Items that a restart keeps are COMPLETED, as in `submit_executions`. Items with
-- references are BLOCKED until `resolve_steps` reads these. A loop without items has no child; the caller completes it.
-- `begins` are items that need no worker. Called under `lock_roots`.
-- takes: steps uuid[]
-- returns: step uuid, execution uuid, child uuid|null, begins uuid|null, has_paths bool
-- row: BegunLoop
-- counted:
with loops as materialized (
    select p.*, uuid7() as child, e.root_id, p.loop -> 'items' as list, (p.loop ->> 'max_parallel')::int as max_parallel,
           p.payload_from is not null as has_paths,
           (select c.id from jobs_execution c
             where c.parent_step_id = p.restart_of_id and c.state in {{EXECUTION_TERMINAL}} and c.state <> 'COMPLETED') as restarts,
           (select c.id from jobs_workerjob before join jobs_execution c on c.parent_step_id = before.id
             where before.execution_id = e.rerun_of_id and before.step = p.step) as repeats
      from jobs_workerjob p
      join jobs_execution e on e.id = p.execution_id
     where p.id = any(%(steps)s::uuid[]) and p.state = 'PENDING' and p.loop ? 'items'
),
begun_loops as (
    update jobs_workerjob p
       set state = 'RUNNING', loop = p.loop - 'items'
      from loops
     where p.id = any(array[loops.id])
),
items as materialized (
    select loops.id as of_loop, loops.child, uuid7() as id, item.number - 1 as position, item.value,
           before.id as restart_of, coalesce(before.state = 'COMPLETED', false) as is_kept, before.output, before.finished_at,
           count(*) filter (where before.state is distinct from 'COMPLETED')
               over (partition by loops.id order by item.number) > loops.max_parallel as is_parked
      from loops
     cross join lateral jsonb_array_elements(loops.list) with ordinality item (value, number)
      left join lateral (
           select j.id, j.state, j.output, j.finished_at from jobs_workerjob j
            where j.execution_id = loops.restarts and j.step = (item.number - 1)::text offset 0) before on true
),
new_executions as (
    insert into jobs_execution (
        id, root_id, parent_step_id, owner_id, namespace, rerun_of_id, name, fingerprint, definition, inputs, open_steps, loop)
    select child, root_id, loops.id, owner_id, namespace, repeats, coalesce(nullif(name, ''), step), fingerprint,
           jsonb_build_object('name', coalesce(nullif(name, ''), step), 'for_each', loop -> 'for_each'),
           jsonb_build_object('items', list),
           (select count(*) from items where items.of_loop = loops.id and not items.is_kept),
           jsonb_build_object('step', step) || (loop - array['items', 'for_each', 'required_tags'])
      from loops where list <> '[]'
 returning id, owner_id, definition, inputs, notify
),
new_items as (
    insert into jobs_workerjob (
        id, owner_id, namespace, execution_id, step, position, payload_from, reads, restart_of_id, is_kept, passed_on,
        state, output, finished_at, parked_by, fingerprint, available_at,
        name, action, payload, tags, required_tags, priority, timeout_seconds, on_worker_lost, unmatched, max_retries,
        retry_delay_seconds, retry_backoff, retry_on, good_until, traceparent, isolation, limits, worker_slots,
        deadline_seconds, deadline_at, on_deadline)
    select items.id, owner_id, namespace, items.child, items.position::text, items.position,
           coalesce(payload_from, '{}') || jsonb_build_object('/item', format('%%s[%%s]', loop ->> 'for_each', items.position)),
           case when has_paths then reads end, items.restart_of, items.is_kept, items.is_kept,
           case when items.is_kept then 'COMPLETED' when has_paths then 'BLOCKED' else 'PENDING' end,
           case when items.is_kept then items.output end, case when items.is_kept then items.finished_at end,
           case when items.is_parked and not items.is_kept then jsonb_build_object('max_parallel', step) end, fingerprint,
           -- Workers claim the oldest first. Items that may start now are not put into the future.
           case when loops.available_at > now.at then loops.available_at else now.at - interval '1 millisecond' end
               + items.position * interval '1 microsecond',
           name, action, payload || jsonb_build_object('item', items.value, 'index', items.position), tags,
           array(select jsonb_array_elements_text(loop -> 'required_tags')), priority, timeout_seconds, on_worker_lost, unmatched,
           max_retries, retry_delay_seconds, retry_backoff, retry_on, good_until, traceparent, isolation, limits,
           worker_slots, deadline_seconds, deadline_at, on_deadline
      from items
      join loops on loops.id = items.of_loop
     cross join (select clock_timestamp() as at) now
     order by loops.id, items.position
 returning id, owner_id, execution_id, state, action, payload, notify, output, is_kept, parked_by, {{needs_no_worker(jobs_workerjob)}} as needs_no_worker
),
inherited_taken_attempts as (
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun, told_observed)
    select t.attempt_id, items.id, t.server_id, t.had_begun, t.told_observed
      from loops
     cross join lateral (select * from jobs_workerjob j where j.execution_id = loops.repeats offset 0) before
     cross join lateral (select * from jobs_takenattempt t where t.job_id = before.id offset 0) t
      join items on items.of_loop = loops.id and items.position::text = before.step and not items.is_kept
)
-- counted: , byte_changes as (
-- counted:     select owner_id as owner, {{bytes_of_execution(new_executions)}} as bytes from new_executions
-- counted:      union all
-- counted:     select owner_id, {{submitted_bytes(new_items)}} + coalesce(octet_length(output::text), 0) from new_items
-- counted: ),
-- counted: {{counted_bytes}}
select loops.id as step, loops.execution_id as execution, new_executions.id as child, new_items.id as begins, loops.has_paths
  from loops
  left join new_executions on new_executions.id = loops.child
  left join new_items on new_items.execution_id = new_executions.id and new_items.needs_no_worker
        and new_items.state = 'PENDING' and new_items.parked_by is null

-- statement: complete_empty_loops
-- Complete loops whose list is empty. They have no child.
-- takes: steps uuid[]
-- returns: id uuid
update jobs_workerjob p
   set state = 'COMPLETED', finished_at = clock_timestamp(), output = '[]'
 where p.id = any(%(steps)s::uuid[]) and p.state = 'RUNNING' and p.loop is not null
returning p.id

-- statement: start_parked_items
-- Unpark the next items of loops, as many as `max_parallel` allows, in order. Called under `lock_roots` after items have
-- ended, so two ends at the same moment are looked at one after the other.
-- takes: executions uuid[]
-- returns: id uuid, needs_no_worker bool
-- row: StartedItem
with items_to_start as materialized (
    select item.id
      from jobs_execution e
     cross join lateral (
           select (e.loop ->> 'max_parallel')::bigint - count(*) as free from jobs_workerjob j
            where j.execution_id = e.id and {{takes_place_in_loop(j)}}) places
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.execution_id = e.id and j.state in ('PENDING', 'BLOCKED') and {{is_parked_by_loop(j)}}
            order by j.position limit greatest(0, places.free)) item
     where e.id = any(%(executions)s::uuid[]) and e.state = 'RUNNING' and e.loop ? 'max_parallel'
)
update jobs_workerjob j
   set parked_by = null, pending_observed = observed_now()
  from items_to_start
 where j.id = any(array[items_to_start.id]) and j.state in ('PENDING', 'BLOCKED')
returning j.id, j.state = 'PENDING' and {{needs_no_worker(j)}} as needs_no_worker
