-- rule: bytes_of_job(j)
-- number of bytes of JSON that job j is stored in
(octet_length(j.action::text) + coalesce(octet_length(j.payload::text), 0)
 + coalesce(octet_length(j.output::text), 0) + coalesce(octet_length(j.checkpoint::text), 0)
 + coalesce(octet_length(j.definition::text), 0) + coalesce(octet_length(j.notify::text), 0))

-- rule: submitted_bytes(j)
-- number of bytes of JSON of a submitted job j
(octet_length(j.action::text) + coalesce(octet_length(j.payload::text), 0)
 + coalesce(octet_length(j.notify::text), 0))

-- rule: bytes_of_execution(e)
-- number of bytes of JSON that execution e is stored in, without its steps
(octet_length(e.definition::text) + coalesce(octet_length(e.inputs::text), 0)
 + coalesce(octet_length(e.notify::text), 0))

-- rule: stored_of_owner(s)
-- number of bytes that the owner of submitter s stores before this statement; 0 without a limit
case when %(stored_limit)s::bigint is null then 0 else coalesce((
    select sum(b.bytes)::bigint from jobs_storedbytes b where b.owner_id = s.owner), 0) end

-- rule: has_no_room(j)
-- true if the owner of job j has reached the limit of stored bytes
(%(stored_limit)s::bigint is not null and j.owner_id is not null and coalesce((
    select sum(b.bytes) >= %(stored_limit)s::bigint from jobs_storedbytes b where b.owner_id = j.owner_id), false))

-- step: counted_bytes -> counted_bytes
-- Record how many bytes a statement adds or deletes. `byte_changes` has an owner and a number of bytes in each row. Jobs
-- of triggers have no owner.
counted_bytes as (
    insert into jobs_storedbytes (owner_id, bytes)
    select owner, sum(bytes) from byte_changes
     where owner is not null
     group by owner having sum(bytes) <> 0
)

-- statement: lock_stored_bytes
-- Lock the sums until the end of the transaction. Statements that only add a row do not wait for this lock.
-- returns: held bool
-- row: HeldSums
select true as held from (select pg_advisory_xact_lock({{SUMS_LOCK}})) locked

-- statement: try_lock_stored_bytes
-- Try to lock the sums like `lock_stored_bytes`, without a wait. `held` is false if another process has the lock.
-- returns: held bool
-- row: HeldSums
select pg_try_advisory_xact_lock({{SUMS_LOCK}}) as held

-- statement: add_up_stored_bytes
-- Replace the rows of each owner by their sum. Called under `try_lock_stored_bytes`.
-- returns: rows bigint
-- row: AddedUp
with replaced as (
    delete from jobs_storedbytes b
     where b.owner_id in (select owner_id from jobs_storedbytes group by owner_id having count(*) > 1)
 returning b.owner_id, b.bytes
),
sums as (
    insert into jobs_storedbytes (owner_id, bytes)
    select owner_id, sum(bytes) from replaced group by owner_id
)
select count(*) as rows from replaced

-- statement: list_storing_owners
-- List the owners whose bytes must be counted again: those with a job, an execution or a sum.
-- returns: id uuid
select t.id
  from liveness_apitoken t
 where exists (select from jobs_workerjob j where j.owner_id = t.id)
    or exists (select from jobs_storedbytes b where b.owner_id = t.id)
    or exists (select from jobs_execution e where e.owner_id = t.id)

-- statement: recount_stored_bytes
-- Count all bytes that an owner stores. Called under `lock_stored_bytes`. It is one snapshot: a statement that stores
-- something at the same time adds its own row.
-- takes: owner uuid
-- returns: bytes bigint
-- row: StoredSum
with replaced as (
    delete from jobs_storedbytes where owner_id = %(owner)s
)
insert into jobs_storedbytes (owner_id, bytes)
select %(owner)s, coalesce(sum(bytes), 0)
  from (select sum({{bytes_of_job(j)}}) as bytes from jobs_workerjob j where j.owner_id = %(owner)s and j.kind <> 'CELERY'
         union all
        select sum(octet_length(l.line))
          from jobs_workerjob j join jobs_attempt a on a.job_id = j.id join jobs_logline l on l.attempt_id = a.id
         where j.owner_id = %(owner)s and j.kind <> 'CELERY'
         union all
        select sum({{bytes_of_execution(e)}}) from jobs_execution e where e.owner_id = %(owner)s) stored
returning bytes

-- statement: forget_stored_bytes
-- Delete all sums, because without a limit nothing is counted. When a limit is set again, everything is counted once.
-- returns: id uuid
with forgotten as (
    delete from liveness_timetable where task = 'recount_stored_bytes'
)
delete from jobs_storedbytes returning owner_id as id

-- statement: read_stored_bytes
-- Read the owners that store most bytes, with the names of their tokens.
-- takes: limit bigint
-- returns: id uuid, name text, bytes bigint
-- row: StoredOfOwner
select b.owner_id as id, t.name, sum(b.bytes)::bigint as bytes
  from jobs_storedbytes b join liveness_apitoken t on t.id = b.owner_id
 group by b.owner_id, t.name
 order by bytes desc, b.owner_id
 limit %(limit)s

-- statement: read_stored_with_copy
-- Return the number of bytes that an owner would store with a copy of a job.
-- takes: job uuid, owner uuid, stored_limit bigint
-- returns: stored bigint
-- row: StoredWithCopy
select ({{stored_of_owner(submitter)}} + {{bytes_of_job(j)}})::bigint as stored
  from jobs_workerjob j cross join (select %(owner)s::uuid as owner) submitter
 where j.id = %(job)s
