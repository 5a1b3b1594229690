-- statement: note_row_left_out
-- Record that a step could not write a row, and count it. Delete such records that are older than a day.
-- takes: step text, row text, error text
with new_tally as (
    insert into liveness_tally (name, labels, number) values ('rows_left_out', array[%(step)s::text], 1)
),
deleted_rows as (
    delete from liveness_leftout where id in (
        select l.id from liveness_leftout l
         where l.at < clock_timestamp() - interval '1 day' and (l.step, l.row) <> (%(step)s, %(row)s)
           for update skip locked)
)
insert into liveness_leftout as l (step, row, error) values (%(step)s, %(row)s, %(error)s)
    on conflict (step, row) do update
   set error = excluded.error, at = clock_timestamp(), times = l.times + 1

-- statement: allow_event_deletion
-- Allow the deletion of events until `forbid_event_deletion` or the end of the transaction.
-- returns: set_config text
select set_config('controlplane.retention', 'on', true)

-- statement: scan_events
-- Scan the next events by id. Return how many are past their retention, and whether to continue.
-- takes: events timestamptz, after bigint, batch bigint
-- returns: last bigint|null, due bigint, has_old bool
-- row: ScannedRange
select (array_agg(e.id order by e.id desc))[1] as last,
       count(*) filter (where e.at < %(events)s) as due,
       bool_or(e.at < %(events)s) as has_old
  from (select id, at from liveness_serverevent where id > %(after)s order by id limit %(batch)s) e

-- statement: delete_events
-- Delete the events of a range of ids that are past their retention. Needs `allow_event_deletion` before it.
-- takes: after bigint, last bigint, events timestamptz
-- returns: deleted bigint
-- row: DeletedRecords
with deleted_events as (
    delete from liveness_serverevent e where e.id > %(after)s and e.id <= %(last)s and e.at < %(events)s
    returning 1
)
select count(*) as deleted from deleted_events

-- statement: forbid_event_deletion
-- Make events append-only again, even if the transaction continues.
-- returns: set_config text
select set_config('controlplane.retention', 'off', true)
