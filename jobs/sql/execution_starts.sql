-- statement: list_waited_keys
-- List the keys for which executions wait. Each key costs one index probe, however many executions there are.
-- returns: key text
-- row: LimitKey
with recursive waited_keys (key) as (
    (select e.parked_by ->> 'limit' from jobs_execution e
      where {{execution_is_parked(e)}}
      order by e.parked_by ->> 'limit' limit 1)
     union all
    select next_key.key
      from waited_keys
     cross join lateral (
           select e.parked_by ->> 'limit' as key from jobs_execution e
            where {{execution_is_parked(e)}} and e.parked_by ->> 'limit' > waited_keys.key
            order by e.parked_by ->> 'limit' limit 1) next_key
)
select key from waited_keys

-- prepared statement: list_executions_to_start
-- List executions that wait for slots of these keys which are free now, the oldest ones of each key and namespace. If
-- an execution needs more slots than are free, those behind it wait. If it needs more than there are, they do not
-- wait. Those in `left_out` cannot start. One that another process could not start is tried again a minute later. It
-- takes no lock, so `start_executions` decides.
-- takes: keys text[], left_out uuid[], most bigint
-- returns: id uuid, namespace text
-- row: ExecutionToStart
with recursive keys (key, namespace) as (
    select asked.key, first_namespace.namespace
      -- The limit makes PostgreSQL expect few keys. Otherwise it compiles the statement (JIT).
      from (select key from unnest(%(keys)s::text[]) key limit cardinality(%(keys)s::text[])) asked
     cross join lateral (
           select e.namespace from jobs_execution e
            where {{execution_is_parked(e)}} and e.parked_by ->> 'limit' = asked.key
            order by e.namespace limit 1) first_namespace
     union all
    select keys.key, next_namespace.namespace
      from keys
     cross join lateral (
           select e.namespace from jobs_execution e
            where {{execution_is_parked(e)}} and e.parked_by ->> 'limit' = keys.key
              and e.namespace > keys.namespace
            order by e.namespace limit 1) next_namespace
)
select waiting.id, keys.namespace
  from keys
 cross join lateral limit_room(keys.key, keys.namespace) room
 cross join lateral (
       select oldest.id, sum(oldest.amount) over (order by oldest.id) as slots
         from (select e.id, (e.limits ->> keys.key)::int as amount
                 from (select e.*, e.id as execution_id from jobs_execution e) e
                where {{execution_is_parked(e)}}
                  and e.parked_by ->> 'limit' = keys.key and e.namespace = keys.namespace
                  and coalesce((e.limits ->> keys.key)::int <= room.most, true)
                  and e.id <> all(%(left_out)s::uuid[]) and not {{starts_under_hold(e)}}
                  and coalesce({{start_refused_at(e)}} < clock_timestamp() - interval '1 minute', true)
                order by e.id
                limit greatest(0, least(%(most)s, room.slots, room.starts))) oldest) waiting
 where coalesce(waiting.slots <= room.slots, true)

-- statement: start_executions
-- Give executions of a namespace all the slots that they need, and unpark their first steps. An execution that lacks a
-- slot stays parked by the key of that slot. Called under `lock_roots`. `begins` are steps that need no worker. With
-- `has_paths` other first steps have paths to be read. The caller begins both. With `has_moved` the execution has started
-- or waits for another key now.
-- takes: executions uuid[], namespace text
-- returns: id uuid, has_started bool, has_moved bool, begins uuid[]|null, has_paths bool
-- row: StartedExecution
with waiting as materialized (
    select e.id, e.limits, e.parked_by ->> 'limit' as key
      from jobs_execution e
     cross join lateral (select e.id as execution_id, e.namespace, e.limits) asked
     where e.id = any(%(executions)s::uuid[]) and e.namespace = %(namespace)s and e.state = 'RUNNING' and e.parked_by is not null
       and not {{starts_under_hold(asked)}}
     order by e.id
       for no key update of e
),
granted as materialized (
    select slots.job as id, slots.missing
      from (select array_agg(id order by id) as ids, array_agg(limits order by id) as limits
              from waiting having count(*) > 0) asked
     cross join lateral grant_slots(asked.ids, asked.limits, %(namespace)s) slots
),
new_slots as (
    insert into jobs_limitslot (key, namespace, execution_id, amount)
    select needed.key, %(namespace)s, waiting.id, needed.value::int
      from granted join waiting using (id) cross join lateral jsonb_each_text(waiting.limits) needed
     where granted.missing is null
),
updated_executions as (
    update jobs_execution e
       set parked_by = case when granted.missing is not null then jsonb_build_object('limit', granted.missing) end,
           started_observed = case when granted.missing is null then observed_now() else e.started_observed end
      from granted
     where e.id = any(array[granted.id])
),
first_steps as (
    update jobs_workerjob j
       set parked_by = case when granted.missing is not null then jsonb_build_object('execution_limit', granted.missing) end,
           pending_observed = observed_now()
      from granted
     where j.execution_id = any(array[granted.id]) and j.state = 'PENDING' and {{is_parked_by_execution(j)}}
 returning j.id, j.execution_id, j.parked_by is null and {{needs_no_worker(j)}} as begins
)
select granted.id, granted.missing is null as has_started, granted.missing is distinct from waiting.key as has_moved,
       (select array_agg(first_steps.id) from first_steps
         where first_steps.execution_id = granted.id and first_steps.begins) as begins,
       granted.missing is null and exists (
           select from jobs_workerjob j
            where j.execution_id = granted.id and j.state = 'BLOCKED' and j.waits_for = 0 and j.reads is not null
              and not j.is_hook) as has_paths
  from granted join waiting using (id)

-- statement: recheck_keys_of_held_executions
-- Note the keys for which executions on hold wait, because others may start before them.
-- returns: key text
-- row: LimitKey
insert into jobs_limitrecheck (key)
select distinct e.parked_by ->> 'limit'
  from (select e.*, e.id as execution_id from jobs_execution e) e
 where {{execution_is_parked(e)}} and {{starts_under_hold(e)}}
returning key

-- statement: free_slots_of_executions
-- Free the slots of executions that have ended and whose code has stopped by now, or that do not exist any more.
-- `propagate_ends` frees the others.
-- returns: id bigint
-- row: FreedSlotOfExecution
with freed_slots as (
    delete from jobs_limitslot slot
     where slot.execution_id is not null
       and not exists (
           select from jobs_execution e
            where e.id = slot.execution_id and (e.finished_at is null or {{may_run_code(e)}}))
 returning slot.id, slot.key
),
{{recheck_freed_keys}}
select id from freed_slots

-- statement: list_held_keys
-- List the keys whose slots an execution, or one above it, holds from its start to its end.
-- takes: execution uuid
-- returns: key text
-- row: HeldKey
with recursive above (limits, parent_step_id) as (
    select e.limits, e.parent_step_id from jobs_execution e where e.id = %(execution)s
     union all
    select e.limits, e.parent_step_id
      from (select parent_step_id from above limit 1) above
     cross join lateral (select j.execution_id from jobs_workerjob j where j.id = above.parent_step_id offset 0) p
     cross join lateral (select * from jobs_execution e where e.id = p.execution_id offset 0) e
)
select distinct jsonb_object_keys(limits) as key from above where limits is not null
