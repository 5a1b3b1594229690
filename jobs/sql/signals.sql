-- statement: store_signal
-- Store a signal. Return no row if the key is known.
-- takes: owner uuid, namespace text, name text, body jsonb, key text
-- returns: id uuid, name text, created_at timestamptz
-- row: StoredSignal
insert into jobs_signal (owner_id, namespace, name, body, key)
values (%(owner)s::uuid, %(namespace)s, %(name)s, %(body)s::jsonb, %(key)s)
    on conflict (owner_id, key) where key is not null do nothing
returning id, name, created_at

-- statement: list_signals_to_deliver
-- List signals that steps may still wait for.
-- takes: batch bigint
-- returns: id uuid
select id from jobs_signal where not is_delivered order by id limit %(batch)s

-- statement: scan_signals
-- Scan the next signals by id: count those past their retention. `has_old` is false when the scan may stop.
-- takes: signals timestamptz, after uuid, batch bigint
-- returns: last uuid|null, due bigint, has_old bool
-- row: ScannedIds
select (array_agg(s.id order by s.id desc))[1] as last,
       count(*) filter (where s.created_at < %(signals)s) as due,
       bool_or(s.created_at < %(signals)s) as has_old
  from (select id, created_at from jobs_signal where id > %(after)s order by id limit %(batch)s) s

-- statement: delete_signals
-- Delete the signals between two ids that are past their retention.
-- takes: after uuid, last uuid, signals timestamptz
-- returns: deleted bigint
-- row: Deleted
with deleted_signals as (
    delete from jobs_signal s where s.id > %(after)s and s.id <= %(last)s and s.created_at < %(signals)s returning 1
)
select count(*) as deleted from deleted_signals
