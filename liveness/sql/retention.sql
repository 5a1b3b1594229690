-- statement: note_row_left_out
-- A row could not be written: by what step, which, why and when last; and once more in the tally. What was mended long
-- ago is forgotten.
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
-- From here to `forbid_event_deletion`, or to the end of the transaction, the trigger lets events go.
-- returns: set_config text
select set_config('controlplane.retention', 'on', true)

-- statement: scan_events
-- The next events in the order of their ids, how many of them are past their retention, and whether to look on.
-- takes: events timestamptz, after bigint, batch bigint
-- returns: last bigint|null, due bigint, has_old bool
-- row: ScannedNumbers
select (array_agg(e.id order by e.id desc))[1] as last,
       count(*) filter (where e.at < %(events)s) as due,
       bool_or(e.at < %(events)s) as has_old
  from (select id, at from liveness_serverevent where id > %(after)s order by id limit %(batch)s) e

-- statement: delete_events
-- Delete the events of a span that are past their retention, between `allow_event_deletion` and `forbid_event_deletion`.
-- takes: after bigint, last bigint, events timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_events as (
    delete from liveness_serverevent e where e.id > %(after)s and e.id <= %(last)s and e.at < %(events)s
    returning 1
)
select count(*) as deleted from deleted_events

-- statement: forbid_event_deletion
-- Events are append-only again, even where the transaction goes on.
-- returns: set_config text
select set_config('controlplane.retention', 'off', true)

-- statement: scan_heartbeats
-- The next heartbeats in the order of their ids, how many of them are past their retention, and whether to look on.
-- takes: servers timestamptz, attempts timestamptz, after bigint, batch bigint
-- returns: last bigint|null, due bigint, has_old bool
-- row: ScannedNumbers
select (array_agg(h.id order by h.id desc))[1] as last,
       count(*) filter (where {{heartbeat_is_past_retention(h)}}) as due,
       bool_or(h.at < greatest(%(servers)s::timestamptz, %(attempts)s::timestamptz)) as has_old
  from (select id, at, role from liveness_heartbeat where id > %(after)s order by id limit %(batch)s) h

-- statement: delete_heartbeats
-- Delete the heartbeats of a span that are past their retention. Nobody else ever touches them again.
-- takes: after bigint, last bigint, servers timestamptz, attempts timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_heartbeats as (
    delete from liveness_heartbeat h where h.id > %(after)s and h.id <= %(last)s and {{heartbeat_is_past_retention(h)}}
    returning 1
)
select count(*) as deleted from deleted_heartbeats
