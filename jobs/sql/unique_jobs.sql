-- statement: lock_unique_keys
-- Lock the unique keys of an owner until the end of the transaction, in the order of the numbers that they are locked by,
-- so that two calls with the same keys cannot deadlock. The next statement sees the jobs of calls that had the lock.
-- takes: owner uuid, keys text[]
-- returns: locked bigint
-- row: LockedKeys
select count(*) as locked
  from (select pg_advisory_xact_lock(hashed.number)
          from (select distinct hashtextextended(%(owner)s::uuid || ' ' || key, 0) as number
                  from unnest(%(keys)s::text[]) keys(key) order by number) hashed offset 0) locked

-- statement: find_open_duplicate
-- Find the latest job with a unique key of an owner that waits or runs; with `only_waiting`, one that waits. Ended jobs
-- are not read, however many there are. Called after `lock_unique_keys`.
-- takes: owner uuid, namespace text, key text, only_waiting bool
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.owner_id = %(owner)s and j.unique_key = %(key)s and j.namespace = %(namespace)s
   and j.state in {{OPEN}} and (j.state = 'PENDING' or not %(only_waiting)s)
 order by j.id desc
 limit 1

-- statement: find_recent_duplicate
-- Find the latest job with a unique key of an owner that was submitted at most `seconds` ago, whether it has ended or
-- not; with `only_waiting`, one that waits. Called after `lock_unique_keys`.
-- takes: owner uuid, namespace text, key text, only_waiting bool, seconds float8
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.owner_id = %(owner)s and j.unique_key = %(key)s and j.namespace = %(namespace)s
   and j.created_at > clock_timestamp() - make_interval(secs => %(seconds)s)
   and (j.state = 'PENDING' or not %(only_waiting)s)
 order by j.created_at desc
 limit 1
