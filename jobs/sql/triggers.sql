-- statement: find_due_triggers
-- Lock a batch of triggers whose next slot is due, for `evaluate_due_triggers`. Triggers that another scheduler has
-- locked are skipped. `in_flight` is true if an evaluation of the trigger has not ended yet.
-- takes: seen uuid[], batch bigint
-- returns: id uuid, now timestamptz, in_flight bool
-- row: DueTrigger
select t.id, clock_timestamp() as now,
       exists (select from jobs_triggerslot s where s.trigger_id = t.id and s.outcome = 'EVALUATING') as in_flight
  from jobs_trigger t
 where t.enabled and t.next_slot_at <= clock_timestamp() and t.id <> all(%(seen)s::uuid[])
   and not exists (select from jobs_hold hold
                    where hold.kind = 'trigger' and hold.value = t.id::text and {{is_in_force(hold)}})
 order by t.next_slot_at
 limit %(batch)s
   for no key update of t skip locked
