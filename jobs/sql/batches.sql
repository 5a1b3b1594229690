-- rule: item_is_due(i)
(i.outcome = 'PENDING' and (i.leased_until is null or i.leased_until <= clock_timestamp()))

-- statement: begin_batch
-- Store a batch with its items, in the order in which they are processed. Return no row if the key is known.
-- takes: key text, operation text, subject_type text, label text, chosen text, query text, actor text, note text,
--   user_key text, namespaces text[], item_namespaces text[], parameters jsonb, left_out jsonb, ids uuid[], seen text[]
-- returns: id uuid
with new_batch as (
    insert into jobs_batch (
        key, operation, subject_type, label, chosen, query, actor, note, user_key, namespaces, item_namespaces,
        parameters, left_out, total)
    values (%(key)s, %(operation)s, %(subject_type)s, %(label)s, %(chosen)s, %(query)s, %(actor)s, %(note)s,
            %(user_key)s, %(namespaces)s::text[], %(item_namespaces)s::text[], %(parameters)s::jsonb, %(left_out)s::jsonb, cardinality(%(ids)s::uuid[]))
        on conflict (key) do nothing
    returning id
),
new_items as (
    insert into jobs_batchitem (batch_id, subject_id, seen)
    select new_batch.id, chosen.id, coalesce(chosen.seen, '')
      from new_batch cross join unnest(%(ids)s::uuid[], %(seen)s::text[]) with ordinality as chosen (id, seen, place)
     order by chosen.place
)
select id from new_batch

-- statement: list_due_batches
-- List the batches that have due items, beginning with the one that was worked on longest ago.
-- returns: id uuid
select b.id from jobs_batch b
 where b.state = 'RUNNING' and exists (select from jobs_batchitem i where i.batch_id = b.id and {{item_is_due(i)}})
 order by b.worked_on_at, b.id

-- statement: lease_items
-- Lease the next due items of a batch to the caller for `seconds`. If the caller's process ends without recording the
-- outcome, another process takes the items after that time.
-- takes: batch uuid, number bigint, seconds float8
-- returns: id bigint, batch uuid, subject_id uuid, seen text, tries int, operation text, label text, actor text,
--   user_key text|null, note text, parameters jsonb, begun_at timestamptz
-- row: LeasedItem
with running_batch as (
    select b.id from jobs_batch b where b.id = %(batch)s and b.state = 'RUNNING'
),
due as materialized (
    select i.id from jobs_batchitem i
     where i.batch_id = any(array(select id from running_batch)) and {{item_is_due(i)}}
     order by i.id
     limit %(number)s
       for no key update skip locked
),
worked_on as (
    update jobs_batch b set worked_on_at = clock_timestamp()
     where b.id = any(array(select id from running_batch)) and exists (select from due)
)
update jobs_batchitem i
   set tries = i.tries + 1, leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
  from jobs_batch b
 where i.id = any(array(select id from due)) and b.id = i.batch_id
returning i.id, b.id as batch, i.subject_id, i.seen, i.tries, b.operation, b.label, b.actor, b.user_key, b.note,
          b.parameters, b.created_at as begun_at

-- statement: record_item
-- Record the outcome of an item, once, and count it in its batch. The last outcome completes the batch.
-- takes: item bigint, outcome text, reason text, result uuid
-- returns: state text
with recorded as (
    update jobs_batchitem i
       set outcome = %(outcome)s::text, reason = %(reason)s, result_id = %(result)s, at = clock_timestamp(), leased_until = null
     where i.id = %(item)s and i.outcome = 'PENDING'
 returning i.batch_id
)
update jobs_batch b
   set done = b.done + (%(outcome)s = 'DONE')::int,
       refused = b.refused + (%(outcome)s = 'REFUSED')::int,
       state = case when b.state = 'RUNNING' and b.done + b.refused + 1 >= b.total then 'COMPLETED' else b.state end,
       finished_at = case when b.done + b.refused + 1 >= b.total then coalesce(b.finished_at, clock_timestamp())
                          else b.finished_at end
  from recorded
 where b.id = any(array[recorded.batch_id])
returning b.state

-- statement: stop_batch
-- Stop a batch, so that no further item begins. Return no row if it has already ended.
-- takes: batch uuid, actor text
-- returns: id uuid
update jobs_batch b
   set state = 'STOPPED', finished_at = clock_timestamp(), stopped_by = %(actor)s
 where b.id = %(batch)s and b.state = 'RUNNING'
returning b.id

-- statement: scan_batches
-- Scan the next batches by id, and count batches past their retention. `has_old` is false if the scan may stop.
-- takes: batches timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(b.id order by b.id desc))[1] as last,
       count(*) filter (where b.finished_at < %(batches)s) as due,
       bool_or(b.created_at < %(batches)s) as has_old
  from (select id, created_at, finished_at from jobs_batch where id > %(after)s order by id limit %(batch)s) b

-- statement: delete_batches
-- Delete the batches between two ids that are past their retention, with their items. Only ended ones have a
-- `finished_at`.
-- takes: after uuid, last uuid, batches timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_batches as (
    delete from jobs_batch b where b.id > %(after)s and b.id <= %(last)s and b.finished_at < %(batches)s returning id
),
deleted_items as (
    delete from jobs_batchitem i where i.batch_id = any(array(select id from deleted_batches))
)
select count(*) as deleted from deleted_batches
