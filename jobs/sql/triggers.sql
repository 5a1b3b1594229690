-- statement: find_due_triggers
-- Lock a batch of triggers whose next slot is due, for `evaluate_due_triggers`. Triggers that another scheduler has
-- locked are skipped. `in_flight` is true if an evaluation of the trigger has not ended yet.
-- takes: seen uuid[], batch bigint
-- returns: id uuid, now timestamptz, in_flight bool
-- row: DueTrigger
select t.id, clock_timestamp() as now,
       exists (select from jobs_triggerslot s where s.trigger_id = t.id and s.outcome = 'EVALUATING') as in_flight
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
 where t.id = any(array(select trigger_id from jobs_triggerslot where outcome = 'QUEUED'))
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
-- List the slots of a trigger that wait, are evaluated or run, in order. Called under the lock of the trigger.
-- takes: trigger uuid
-- returns: id bigint, outcome text, by text
-- row: OpenSlot
select s.id, s.outcome, s.by
  from jobs_triggerslot s
 where s.trigger_id = %(trigger)s and {{slot_is_open(s)}} and (not s.is_running or {{execution_runs(s)}})
 order by s.slot

-- statement: settle_slots
-- Note which executions of triggers have ended. Slots that another transaction has locked are left to the next tick.
-- takes:
-- returns: id bigint
update jobs_triggerslot s
   set is_running = false
 where s.id = any(array(select s.id from jobs_triggerslot s
                         where {{slot_is_open(s)}} and s.is_running and not {{execution_runs(s)}}
                         order by s.id
                           for no key update skip locked))
returning s.id

-- statement: find_replaced_executions
-- List running executions that must end because a later slot of their trigger waits (`cancel_running`).
-- takes:
-- returns: id uuid
select distinct e.id
  from jobs_triggerslot queued
  join jobs_trigger t on t.id = queued.trigger_id and t.overlap = 'cancel_running'
  join jobs_triggerslot s on s.trigger_id = t.id and {{slot_is_open(s)}} and s.is_running
  join jobs_execution e on e.id = s.execution_id and e.state = 'RUNNING'
 where queued.outcome = 'QUEUED' and (t.enabled or queued.by <> '')
