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
-- List the slots of a trigger that wait or are evaluated, in order. Called under the lock of the trigger.
-- takes: trigger uuid
-- returns: id bigint, outcome text, by text
-- row: OpenSlot
select s.id, s.outcome, s.by
  from jobs_triggerslot s
 where s.trigger_id = %(trigger)s and s.outcome in ('QUEUED', 'EVALUATING')
 order by s.slot
