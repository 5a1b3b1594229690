-- statement: queue_backfill
-- Queue the slots of a new backfill. Slots that fired, wait or are evaluated stay as they are. Called under the lock of
-- the trigger.
-- takes: trigger uuid, backfill uuid, slots timestamptz[], by text
-- returns: id bigint
-- row: BackfillSlot
insert into jobs_triggerslot (trigger_id, slot, outcome, by, backfill_id)
select %(trigger)s, slot, 'QUEUED', %(by)s, %(backfill)s from unnest(%(slots)s::timestamptz[]) slot
    on conflict (trigger_id, slot) do update
   set outcome = 'QUEUED', note = '', by = excluded.by, job_id = null, execution_id = null, backfill_id = excluded.backfill_id
 where jobs_triggerslot.outcome in ('MISSED', 'SKIPPED', 'NOT_FIRED', 'FAILED')
returning id

-- statement: find_running_backfills
-- List backfills that are not held with their trigger.
-- takes:
-- returns: id uuid
select b.id from jobs_backfill b
 where b.state = 'RUNNING'
   and not exists (select from jobs_hold hold
                    where hold.kind = 'trigger' and hold.value = b.trigger_id::text and {{is_in_force(hold)}})
 order by b.id

-- statement: list_backfill_slots_to_start
-- List the next slots of a backfill, as many as may start beside those that run. Called under the lock of the backfill.
-- takes: backfill uuid
-- returns: id bigint
-- row: BackfillSlot
select s.id from jobs_triggerslot s
 where s.backfill_id = %(backfill)s and s.outcome = 'QUEUED'
 order by s.slot
 limit (select greatest(b.max_running - running.count, 0)
          from jobs_backfill b
         cross join lateral (select count(*) as count from jobs_triggerslot r where r.backfill_id = b.id and {{slot_runs(r)}}) running
         where b.id = %(backfill)s)

-- statement: complete_backfills
-- Complete backfills whose slots have all ended.
-- takes:
-- returns: id uuid
update jobs_backfill b
   set state = 'COMPLETED', finished_at = clock_timestamp()
 where b.id = any(array(select b.id from jobs_backfill b
                         where b.state = 'RUNNING' and not exists (
                               select from jobs_triggerslot s
                                where s.backfill_id = b.id and (s.outcome = 'QUEUED' or {{slot_runs(s)}}))
                         order by b.id
                           for no key update skip locked))
returning b.id

-- statement: stop_backfill
-- Stop a backfill, and skip its slots that have not started. Return no row if it has ended.
-- takes: backfill uuid
-- returns: id uuid
with stopped_backfills as (
    update jobs_backfill b
       set state = 'STOPPED', finished_at = clock_timestamp()
     where b.id = %(backfill)s and b.state = 'RUNNING'
 returning b.id
),
skipped_slots as (
    update jobs_triggerslot s
       set outcome = 'SKIPPED', note = 'the backfill was stopped'
      from stopped_backfills
     where s.backfill_id = any(array[stopped_backfills.id]) and s.outcome = 'QUEUED'
)
select id from stopped_backfills

-- statement: count_backfill_slots
-- Count the slots of backfills that wait and that run.
-- takes: backfills uuid[]
-- returns: id uuid, waiting bigint, running bigint
-- row: BackfillCounts
select b.id, counted.waiting, counted.running
  from jobs_backfill b
 cross join lateral (
       select count(*) filter (where s.outcome = 'QUEUED') as waiting, count(*) filter (where {{slot_runs(s)}}) as running
         from jobs_triggerslot s where s.backfill_id = b.id) counted
 where b.id = any(%(backfills)s::uuid[])
