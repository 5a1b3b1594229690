-- statement: find_due_triggers
-- Triggers whose slot has come, and whether an evaluation is in flight.
-- takes: seen uuid[], batch bigint
-- returns: id uuid, now timestamptz, in_flight bool
-- row: DueTrigger
select t.id, clock_timestamp() as now,
       exists (select from jobs_triggerslot s where s.trigger_id = t.id and s.outcome = 'EVALUATING') as in_flight
  from jobs_trigger t
 where t.enabled and t.next_slot_at <= clock_timestamp() and t.id <> all(%(seen)s::uuid[])
 order by t.next_slot_at
 limit %(batch)s
   for no key update of t skip locked
