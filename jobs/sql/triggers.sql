-- statement: find_due_triggers
-- Lock a batch of triggers whose next slot is due, for `evaluate_due_triggers`. Triggers that another scheduler has
-- locked are skipped. `in_flight` is true if an evaluation of the trigger has not ended yet.
-- takes: seen uuid[], batch bigint
-- returns: id uuid, now timestamptz, in_flight bool
-- row: DueTrigger
select t.id, clock_timestamp() as now,
       exists (select from jobs_triggerslot s where s.trigger_id = t.id and s.outcome = 'EVALUATING' and s.backfill_id is null) as in_flight
  from jobs_trigger t
 where t.enabled and t.next_slot_at <= clock_timestamp() - make_interval(secs => {{start_delay(t)}})
   and t.id <> all(%(seen)s::uuid[])
   and not exists (select from jobs_hold hold
                    where hold.kind = 'trigger' and hold.value = t.id::text and {{is_in_force(hold)}})
 order by t.next_slot_at
 limit %(batch)s
   for no key update of t skip locked

-- statement: find_queued_triggers
-- Lock a batch of triggers with slots that wait for an earlier one, for `start_all_queued_slots`. Triggers that another
-- scheduler has locked are skipped.
-- takes: seen uuid[], batch bigint
-- returns: id uuid, now timestamptz
-- row: QueuedTrigger
select t.id, clock_timestamp() as now
  from jobs_trigger t
 where t.id = any(array(select trigger_id from jobs_triggerslot where outcome = 'QUEUED' and backfill_id is null))
   and t.id <> all(%(seen)s::uuid[])
   and not exists (select from jobs_hold hold
                    where hold.kind = 'trigger' and hold.value = t.id::text and {{is_in_force(hold)}})
 order by t.id
 limit %(batch)s
   for no key update of t skip locked

-- statement: queue_slots
-- Queue slots of a trigger. A slot that is known stays as it is, unless it was missed. Called under the lock of the
-- trigger.
-- takes: trigger uuid, slots timestamptz[], note text, by text, key text
-- returns: id bigint
-- row: QueuedSlot
insert into jobs_triggerslot (trigger_id, slot, outcome, note, by, key)
select %(trigger)s, slot, 'QUEUED', %(note)s, %(by)s, %(key)s from unnest(%(slots)s::timestamptz[]) slot
    on conflict (trigger_id, slot) do update
   set outcome = 'QUEUED', note = excluded.note, by = excluded.by, key = excluded.key
 where jobs_triggerslot.outcome = 'MISSED'
returning id

-- statement: list_open_slots
-- List the slots of a trigger that wait, are evaluated or run, in order. Called under the lock of the trigger. Those of
-- backfills are left out, because these ignore the overlap.
-- takes: trigger uuid
-- returns: id bigint, outcome text, by text
-- row: OpenSlot
select s.id, s.outcome, s.by
  from jobs_triggerslot s
 where s.trigger_id = %(trigger)s and s.backfill_id is null and {{slot_is_open(s)}} and (not s.is_running or {{execution_runs(s)}})
 order by s.slot

-- statement: settle_slots
-- Note which executions of triggers have ended, and count FAILED ones in a row. A COMPLETED one ends the row, a
-- CANCELLED one changes nothing, and those of backfills do not count. Pause triggers with too many in a row, and return these. Triggers that another
-- transaction has locked are left to the next tick.
-- takes:
-- returns: id uuid, name text, failures bigint
-- row: PausedTrigger
with ending_triggers as materialized (
    select t.id, t.enabled, t.enabled_at, t.failures_in_row, t.pause_after_failures
      from jobs_trigger t
     where t.id = any(array(select s.trigger_id from jobs_triggerslot s
                             where {{slot_is_open(s)}} and s.is_running and not {{execution_runs(s)}}))
     order by t.id
       for no key update skip locked
),
ended_slots as materialized (
    select s.id, s.execution_id, s.backfill_id
      from ending_triggers
      join jobs_triggerslot s on s.trigger_id = ending_triggers.id and {{slot_is_open(s)}} and s.is_running
     where not {{execution_runs(s)}}
     order by s.id
       for no key update of s
),
settled_slots as (
    update jobs_triggerslot s set is_running = false from ended_slots where s.id = any(array[ended_slots.id])
),
ended_executions as (
    select e.trigger_id as id, e.state,
           count(*) filter (where e.state = 'COMPLETED') over (partition by e.trigger_id order by e.finished_at, e.id) as place
      from ended_slots
      join jobs_execution e on e.id = ended_slots.execution_id
      join ending_triggers t on t.id = e.trigger_id
     where ended_slots.backfill_id is null and (t.enabled_at is null or e.created_at >= t.enabled_at)
),
rows_of_failures as (
    select id, place, count(*) filter (where state = 'FAILED') + case when place = 0 then failures_in_row else 0 end as failures
      from ended_executions join ending_triggers using (id)
     group by id, place, failures_in_row
),
counted as (
    select id, max(failures) as longest, (array_agg(failures order by place desc))[1] as last
      from rows_of_failures group by id
),
updated_triggers as (
    update jobs_trigger t
       set failures_in_row = counted.last,
           enabled = t.enabled and counted.longest < coalesce(t.pause_after_failures, counted.longest + 1),
           next_slot_at = case when counted.longest < coalesce(t.pause_after_failures, counted.longest + 1) then t.next_slot_at end
      from counted
     where t.id = any(array[counted.id])
 returning t.id, t.name, t.enabled, counted.longest
)
select updated_triggers.id, name, longest as failures
  from updated_triggers join ending_triggers using (id)
 where ending_triggers.enabled and not updated_triggers.enabled

-- statement: find_replaced_executions
-- List running executions that must end because a later slot of their trigger waits (`cancel_running`).
-- takes:
-- returns: id uuid
select distinct e.id
  from jobs_triggerslot queued
  join jobs_trigger t on t.id = queued.trigger_id and t.overlap = 'cancel_running'
  join jobs_triggerslot s on s.trigger_id = t.id and {{slot_is_open(s)}} and s.is_running and s.backfill_id is null
  join jobs_execution e on e.id = s.execution_id and e.state = 'RUNNING'
 where queued.outcome = 'QUEUED' and queued.backfill_id is null and (t.enabled or queued.by <> '')

-- statement: queue_signals
-- Queue a slot of each trigger on a new signal, one batch of signals. A trigger that already started in the chain of
-- executions that led to the signal is refused. The times of slots are unique, so a slot is at least a microsecond after
-- all earlier slots of its trigger. A signal may have been committed later than younger ones.
-- takes: batch bigint
-- returns: id uuid, name text, is_refused bool|null
-- row: RoutedSignal
with new_signals as materialized (
    select s.id, s.namespace, s.name, s.body, s.trigger_chain, s.created_at from jobs_signal s
     where not s.is_routed order by s.id limit %(batch)s
       for no key update skip locked
),
routed_signals as (
    update jobs_signal s set is_routed = true from new_signals where s.id = any(array[new_signals.id])
),
started_triggers as materialized (
    select t.id as trigger, t.name as trigger_name, s.id, s.name, s.body, s.trigger_chain, s.created_at,
           t.id = any(s.trigger_chain) as is_refused,
           row_number() over (partition by t.id order by s.created_at, s.id) as place
      from new_signals s join jobs_trigger t on {{starts_at(t, s)}}
),
new_slots as (
    insert into jobs_triggerslot (trigger_id, slot, outcome, note, signal, body, trigger_chain)
    select trigger, coalesce(known.last, created_at - interval '1 microsecond') + place * interval '1 microsecond',
           case when is_refused then 'SKIPPED' else 'QUEUED' end,
           case when is_refused then 'it started before in the same chain of executions' else '' end,
           name, case when not is_refused then body end, trigger_chain
      from started_triggers
     cross join lateral (
           select max(slot) as last from jobs_triggerslot where trigger_id = trigger and slot >= created_at) known
),
new_events as (
    insert into jobs_executionevent (execution_id, code, line)
    select e.id, 'TRIGGER_REFUSED',
           format('The trigger %%s does not start: it started before in the same chain of executions', trigger_name)
      from started_triggers join jobs_execution e on e.id = case when is_refused then (body ->> 'id')::uuid end
)
select s.id, s.name, t.is_refused from new_signals s left join started_triggers t using (id)
