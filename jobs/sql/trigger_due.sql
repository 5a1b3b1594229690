-- Triggers whose slot has come and of which no evaluation is in flight.
select t.id, clock_timestamp() as now
  from jobs_trigger t
 where t.enabled and t.next_slot_at <= clock_timestamp() and t.id <> all(%(failed)s::uuid[])
   and not exists (select from jobs_triggerslot s where s.trigger_id = t.id and s.outcome = 'EVALUATING')
 order by t.next_slot_at
 limit %(batch)s
   for no key update of t skip locked
