-- prepared statement: list_rechecks
-- List noted keys, and whether jobs (`has_jobs`) or executions (`is_waited_for`) wait that have them. Claimable jobs count
-- only if a rule limits the key, because none of them is parked otherwise. It deletes notes of keys for which nothing
-- waits. If a job is parked at this moment, its own note is younger. It takes no other lock: see
-- `take_rechecks`. Notes up to the id `after` are not read.
-- takes: most bigint, after bigint
-- returns: id bigint, key text, has_jobs bool, is_waited_for bool
-- row: LimitRecheckToTake
with noted as materialized (
    select t.id, t.key,
           {{has_parked_jobs(t)}}
           or {{is_limited(t)}} and coalesce((
               select true from jobs_workerjob j
                where {{is_claimable_with_limits(j)}} and j.limits ? t.key
                limit 1), false) as has_jobs,
           {{has_parked_executions(t)}} as is_waited_for
      from (select id, key from jobs_limitrecheck where id > %(after)s order by id limit %(most)s) t
),
dropped as (
    delete from jobs_limitrecheck t
     where t.id = any(array(
           select r.id from jobs_limitrecheck r
            where r.id = any(array(select id from noted where not has_jobs and not is_waited_for))
            order by r.id for update skip locked))
)
select id, key, has_jobs, is_waited_for from noted order by id

-- prepared statement: take_rechecks
-- Take these notes, and return each of their keys once. Two processes never take the same note.
-- takes: ids bigint[]
-- returns: key text
-- row: LimitKey
with taken as (
    delete from jobs_limitrecheck t
     where t.id = any(array(select id from jobs_limitrecheck where id = any(%(ids)s::bigint[]) order by id for update skip locked))
 returning t.key
)
select distinct key from taken

-- step: parked_keys -> parked_keys
-- List the keys by which jobs are parked: one index probe for each, however many jobs are.
parked_keys (key) as (
    (select j.parked_by ->> 'limit' from jobs_workerjob j
      where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' > ''
      order by j.parked_by ->> 'limit' limit 1)
     union all
    select next_key.key
      from parked_keys
     cross join lateral (
           select j.parked_by ->> 'limit' as key from jobs_workerjob j
            where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' > parked_keys.key
            order by j.parked_by ->> 'limit' limit 1) next_key
)

-- statement: note_rechecks
-- Note keys whose jobs may be parked or unparked.
-- takes: keys text[]
-- returns: key text
-- row: LimitKey
insert into jobs_limitrecheck (key) select distinct key from unnest(%(keys)s::text[]) keys (key) returning key

-- statement: lock_limit_keys
-- Lock keys until the end of the transaction, in the order of the numbers that they are locked by, as `grant_slots` does.
-- Nobody who holds this lock waits for the lock of a job, so it is taken after those.
-- takes: keys text[]
-- returns: locked bigint
-- row: LockedLimitKeys
select count(*) as locked
  from (select pg_advisory_xact_lock(hashed.number)
          from (select distinct hashtextextended('limit ' || key, 0) as number
                  from unnest(%(keys)s::text[]) keys (key) order by number) hashed offset 0) locked

-- prepared statement: settle_keys
-- Make as many jobs of each key claimable as it has free slots and starts, separately for each namespace and set of
-- required tags: park the last ones of too many, and unpark the first ones of too few. One pass reads up to `most` jobs of
-- each set. `moved` are the unparked jobs and those that wait for another key now. Called after
-- `lock_limit_keys`, in the same round trip.
-- takes: keys text[], most bigint
-- returns: parked bigint, unparked bigint, moved bigint
-- row: SettledKeys
with recursive keys as materialized (
    -- The limit makes PostgreSQL expect few keys. Otherwise it compiles the statement (JIT).
    select named.key, {{is_limited(named)}} as is_limited
      from (select distinct key from unnest(%(keys)s::text[]) keys (key) limit cardinality(%(keys)s::text[])) named
),
parked_sets (key, is_limited, namespace, required_tags) as (
    select keys.key, keys.is_limited, first_set.namespace, first_set.required_tags
      from keys
     cross join lateral (
           select j.namespace, j.required_tags from jobs_workerjob j
            where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' = keys.key
            order by j.namespace, j.required_tags limit 1) first_set
     union all
    select parked_sets.key, parked_sets.is_limited, next_set.namespace, next_set.required_tags
      from parked_sets
     cross join lateral (
           select j.namespace, j.required_tags from jobs_workerjob j
            where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' = parked_sets.key
              and (j.namespace, j.required_tags) > (parked_sets.namespace, parked_sets.required_tags)
            order by j.namespace, j.required_tags limit 1) next_set
),
claimable_jobs as materialized (
    -- Keys that are only fair are left out. All their jobs may be claimable, and none of them is parked.
    select keys.key, j.id, j.namespace, j.required_tags, j.priority, j.turn, j.available_at, (j.limits ->> keys.key)::int as amount
      from (select * from keys where is_limited) keys
     cross join lateral (
           select * from jobs_workerjob j
            where {{is_claimable_with_limits(j)}} and j.limits ? keys.key
              and j.available_at <= (select clock_timestamp())
            limit %(most)s) j
),
rooms as materialized (
    -- `offset 0` makes PostgreSQL look at limited keys only, and read `reserved` once for each.
    select of_key.key, of_key.namespace, room.slots, room.starts, room.most
      from (select key, is_limited, namespace from parked_sets union select key, true, namespace from claimable_jobs) of_key
      left join lateral (
           select in_key.*
             from (select {{reserved_slots(of_key)}} as slots offset 0) reserved
            cross join lateral limit_room(of_key.key, of_key.namespace, reserved.slots) in_key
            where of_key.is_limited offset 0) room on true
),
counted_jobs as (
    select claimable_jobs.*,
           sum(amount) over in_order as slots, row_number() over in_order as starts
      from claimable_jobs
    window in_order as (partition by key, namespace, required_tags order by priority desc, turn, available_at, id)
),
jobs_to_park as materialized (
    select counted_jobs.id, min(counted_jobs.key) as key
      from counted_jobs join rooms using (key, namespace)
     where counted_jobs.slots > rooms.slots or counted_jobs.starts > rooms.starts
     group by counted_jobs.id
),
kept_jobs as materialized (
    select key, namespace, required_tags, sum(amount) as slots, count(*) as starts
      from claimable_jobs where id not in (select id from jobs_to_park) group by key, namespace, required_tags
),
sets_with_room as materialized (
    select *, least(slots, starts, %(most)s) as jobs
      from (select parked_sets.*, rooms.most, rooms.slots - coalesce(kept.slots, 0) as slots,
                   rooms.starts - coalesce(kept.starts, 0) as starts
              from parked_sets
              join rooms using (key, namespace)
              left join kept_jobs kept using (key, namespace, required_tags)) sets
     where least(slots, starts, %(most)s) > 0
),
jobs_to_unpark as materialized (
    -- In the order of claims. Jobs with a turn and those without (turn 0) come alternately, and it is random which begin.
    select parked.id, free.key, free.namespace, free.required_tags, parked.priority, parked.available_at, parked.limits,
           parked.turn
      from sets_with_room free
     cross join lateral (
           with first_jobs as materialized (
               select j.id, j.priority, j.turn, j.available_at, j.limits, (j.limits ->> free.key)::int as amount
                 from jobs_workerjob j
                where {{may_be_unparked(j, free)}}
                order by j.priority desc, j.turn, j.available_at, j.id
                limit free.jobs
                  for no key update skip locked
           ),
           jobs_with_turn as (
               select later.*
                 from (select distinct priority from first_jobs where turn = 0) of_priority
                cross join lateral (
                      select j.id, j.priority, j.turn, j.available_at, j.limits, (j.limits ->> free.key)::int as amount
                        from jobs_workerjob j
                       where {{may_be_unparked(j, free)}} and j.priority = of_priority.priority and j.turn >= 1
                       order by j.turn, j.available_at, j.id
                       limit free.jobs
                         for no key update skip locked) later
                where later.id not in (select id from first_jobs)
           )
           select candidate.*
             from (select placed.*, row_number() over in_order as starts, sum(placed.amount) over in_order as slots
                     from (select next_jobs.*, row_number() over (partition by priority, turn = 0 order by turn, available_at, id) as place
                             from (select * from first_jobs union all select * from jobs_with_turn) next_jobs) placed
                   window in_order as (
                       order by placed.priority desc, placed.place, (placed.turn = 0) = (select random() < 0.5), placed.id)) candidate
            where coalesce(candidate.slots <= free.slots, true) and candidate.starts <= free.jobs) parked
),
{{turns_of_jobs}},
unparked_jobs as (
    -- A job that gets its turn now waits for its other keys in the order of turns. Otherwise it would be claimable although
    -- they may have no room.
    update jobs_workerjob j
       set parked_by = jobs_to_unpark.other_limit, pending_observed = observed_now(), turn = jobs_to_unpark.new_turn
      from (select jobs_to_unpark.id, coalesce(turns_of_jobs.turn, jobs_to_unpark.turn) as new_turn,
                   case when turns_of_jobs.turn is not null then {{other_limit(jobs_to_unpark)}} end as other_limit
              -- A full join as in `turns_of_jobs`: each job that gets a turn is one of these.
              from jobs_to_unpark full join turns_of_jobs using (id)) jobs_to_unpark
     where j.id = any(array[jobs_to_unpark.id])
 returning j.id, j.parked_by ->> 'limit' as parked_by
),
locked_jobs as materialized (
    select locked_job.id, jobs_to_park.key
      from jobs_to_park
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = jobs_to_park.id and j.state = 'PENDING' and j.parked_by is null
              for no key update skip locked) locked_job
),
parked_jobs as (
    update jobs_workerjob j
       set parked_by = jsonb_build_object('limit', locked_jobs.key)
      from locked_jobs
     where j.id = any(array[locked_jobs.id])
 returning j.limits
),
new_rechecks as (
    -- The other keys of a parked job are free for other jobs now.
    insert into jobs_limitrecheck (key)
    select distinct keys_of_job.key from parked_jobs, jsonb_object_keys(parked_jobs.limits) keys_of_job (key)
     where keys_of_job.key not in (select key from keys)
     union
    select parked_by from unparked_jobs where parked_by is not null
)
select (select count(*) from parked_jobs) as parked, count(*) filter (where parked_by is null) as unparked,
       count(*) as moved
  from unparked_jobs

-- statement: list_parked_keys
-- List the keys by which jobs are parked. With `rated` only keys whose rules limit their starts, because time alone frees
-- these.
-- takes: rated bool
-- returns: key text
-- row: LimitKey
with recursive {{parked_keys}}
select key from parked_keys
 where not %(rated)s or exists (
       select from jobs_limitrule r where r.pattern = any(limit_patterns(parked_keys.key)) and r.starts is not null)

-- statement: free_slots
-- Delete slots of attempts whose code has stopped, although nothing freed them. That happens only if the worker did not
-- stop an attempt in time, or if rows were changed by hand. Called by the sweep.
-- takes: only bigint[]
-- returns: id bigint
-- row: FreedSlot
with slots_to_free as materialized (
    select slot.id
      from jobs_limitslot slot
      left join jobs_attempt a on a.id = slot.attempt_id
      left join liveness_server s on s.id = a.server_id
     cross join liveness_clock clock
     where slot.attempt_id is not null
       and (a.id is null or a.finished_at is not null
            and not exists (select from jobs_takenattempt t where t.attempt_id = slot.attempt_id)
            and (s.id is null or s.state in {{STOPPED}} or {{code_stops_at(s)}} <= clock.reading or a.ended_by = 'server'
                 or exists (select from jobs_latereport r
                             where r.attempt_id = a.id and r.event in ('COMPLETED', 'FAILED', 'CANCELLED', 'RELEASED'))))
       and (%(only)s::bigint[] is null or slot.id = any(%(only)s))
     order by slot.id
       for update of slot skip locked
),
-- due: select id from slots_to_free
freed_slots as (
    delete from jobs_limitslot slot using slots_to_free where slot.id = any(array[slots_to_free.id]) returning slot.id, slot.key
),
{{recheck_freed_keys}}
select id from freed_slots

-- statement: recheck_pattern
-- Note the keys of a rule that was changed: the key itself, or the keys under its prefix by which jobs or executions are
-- parked.
-- takes: pattern text
-- returns: key text
-- row: LimitKey
with recursive {{parked_keys}},
new_rechecks as (
    insert into jobs_limitrecheck (key)
    select %(pattern)s where right(%(pattern)s, 2) <> ':*'
     union all
    select key from parked_keys where right(%(pattern)s, 2) = ':*' and %(pattern)s = any(limit_patterns(key))
     union
    select e.parked_by ->> 'limit' from jobs_execution e
     where right(%(pattern)s, 2) = ':*' and {{execution_is_parked(e)}}
       and %(pattern)s = any(limit_patterns(e.parked_by ->> 'limit'))
 returning key
)
select key from new_rechecks

-- statement: list_limit_keys
-- List the keys in use that match a pattern (null: all), with the slots that jobs of some namespaces (null: all) may use
-- and use. Parked jobs, and parked executions, are counted up to `counted`.
-- takes: pattern text, namespaces text[], counted bigint, most bigint
-- returns: key text, used bigint, allowed int|null, parked bigint, oldest_at timestamptz|null
-- row: UsedLimitKey
with recursive held_keys as (
    select slot.key, sum(slot.amount) as used from jobs_limitslot slot
     where (%(pattern)s::text is null or %(pattern)s = any(limit_patterns(slot.key))) and {{is_in_namespaces(slot)}}
     group by slot.key
),
{{parked_keys}},
used_keys as (
    select key from held_keys
     union
    select key from parked_keys where %(pattern)s::text is null or %(pattern)s = any(limit_patterns(key))
     union
    select e.parked_by ->> 'limit' from jobs_execution e
     where {{execution_is_parked(e)}} and {{is_in_namespaces(e)}}
       and (%(pattern)s::text is null or %(pattern)s = any(limit_patterns(e.parked_by ->> 'limit')))
)
select used_keys.key, coalesce(held_keys.used, 0)::bigint as used,
       (select min(l.running) from unnest(coalesce(%(namespaces)s::text[], array['default'])) of_job (namespace),
               limits_of(used_keys.key, of_job.namespace) l) as allowed,
       waiting.parked, waiting.oldest_at
  from used_keys
  left join held_keys using (key)
 cross join lateral (
       select count(*) as parked, min(counted.created_at) as oldest_at
         from ((select j.created_at from jobs_workerjob j
                 where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' = used_keys.key
                   and {{is_in_namespaces(j)}}
                 limit %(counted)s)
                union all
               (select e.created_at from jobs_execution e
                 where {{execution_is_parked(e)}} and e.parked_by ->> 'limit' = used_keys.key
                   and {{is_in_namespaces(e)}}
                 limit %(counted)s)) counted) waiting
 where held_keys.used > 0 or waiting.parked > 0
 order by waiting.parked desc, used desc, used_keys.key
 limit %(most)s

-- statement: count_limit_repairs
-- Count the slots that the sweep freed and the jobs that it unparked. Both are 0 in a healthy system.
-- takes: freed bigint, unparked bigint
-- returns: what text
-- row: CountedRepair
with tallies as (
    insert into liveness_tally (name, labels, number)
    select 'limit_repairs', array[what], number
      from (values ('slots', %(freed)s::bigint), ('jobs', %(unparked)s::bigint)) repaired (what, number)
     where number > 0
 returning labels
)
select labels[1] as what from tallies

-- statement: drop_full_buckets
-- Delete buckets that are full again, so that keys that are used once leave nothing behind. Called by the sweep. A claim
-- that uses a bucket at this moment sets its time, so that one stays.
-- returns: key text
-- row: LimitKey
delete from jobs_limitbucket b
 where b.at < clock_timestamp() - interval '1 hour'
   and not exists (
       select from limits_of(b.key, b.namespace) l where l.namespace = b.namespace and l.tokens < l.starts)
returning b.key
