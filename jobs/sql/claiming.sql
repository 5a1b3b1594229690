-- statement: lock_server
-- Lock the row of a server before `claim_jobs`, in the same round trip. Claims of one server then run one after the
-- other, and its state and capacity cannot change during a claim. Nor can a rule by action, tag or namespace be set during
-- a claim: see `lock_rules`.
-- takes: server uuid
-- returns: id uuid
select s.id
  from (select pg_advisory_xact_lock_shared({{RULES_LOCK}}) offset 0) locked
 cross join liveness_server s
 where s.id = %(server)s
   for no key update of s

-- prepared statement: claim_jobs
-- Give a worker jobs that it can and may run, by priority, then turn, then age. Called for each claim, after `lock_server`.
-- The queue is read once for each set of required tags that the worker has, so jobs with other tags cost nothing.
-- There is always at least one row: a row without an attempt means that the worker gets no job.
-- For a set of tags and a priority with jobs of fair keys, the jobs with a turn and those without (turn 0) are read
-- separately and are given alternately. It is random which begin, and which set of tags begins. A job of a fair key
-- without a turn is parked until it has one.
-- `known` are the sets of tags of an earlier claim (`tags`), each with its floors (`priority`, `fair`, and the position
-- `turn`, `at`, `id` where its waiting jobs begin). Dead index entries before a floor are not read. `seen` is what this
-- claim saw, for the next one; see jobs/services/claim_floors.py. Without `known` nothing is remembered. A job whose
-- limits leave it no slot is parked; `parked` counts these. A job that needs more slots than are free is passed over, and
-- jobs behind it start. After {{OVERTAKEN_FOR}} s they wait behind it, so that slots become free: `slots_wanted` is their
-- number then.
-- takes: server uuid, version int, staleness_multiplier float8, request uuid, limit bigint, ahead bigint, only uuid[], most bigint,
--   known jsonb
-- returns: server uuid|null, obstacle text|null, id uuid|null, number int, job uuid, kind text, action jsonb,
--   payload jsonb|null, payload_from jsonb|null, timeout_seconds float8|null, execution uuid|null, step text|null,
--   checkpoint jsonb|null, traceparent text|null, former_traceparent text|null, isolation text|null, worker_slots int|null,
--   seen jsonb|null, parked bigint, slots_wanted int|null
-- row: ClaimedAttempt
with recursive caller as (
    select s.id, s.namespace, s.tags, s.max_concurrent, {{liveness.obstacle_to_work(s)}} as obstacle
      from liveness_server s
     where s.id = %(server)s and s.token_version = %(version)s
),
worker as (
    select * from caller where obstacle is null
),
repeated_claim as (
    -- A claim that is repeated, because its response was lost, gets the same attempts, even if the worker may not get
    -- new work now.
    select a.id, a.number, a.job_id, a.state, a.server_id
      from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.request_id = %(request)s and s.id = %(server)s
       and s.token_version = %(version)s and not {{liveness.has_ended(s)}}
),
capacity as (
    -- Jobs that are claimed ahead hold no slot of the worker. `largest` is the number of slots that a job may need that
    -- is not passed over.
    select least(%(limit)s, free.slots) + %(ahead)s::bigint as jobs, free.slots + %(ahead)s::bigint as slots,
           least(%(limit)s, free.slots) as free_jobs, free.slots as free_slots,
           least(free.slots + %(ahead)s::bigint, worker.max_concurrent) as largest
      from worker cross join lateral (select {{free_capacity(worker)}} as slots) free
     where not exists (select from repeated_claim)
),
offers as (select worker.namespace, worker.tags from worker),
known as materialized (
    select known_sets.tags, known_sets.floors from jsonb_to_recordset(%(known)s::jsonb) as known_sets (tags text[], floors jsonb)
),
{{pending_tag_sets_of}},
fair_queues as materialized (
    -- The priorities of each set in which fair keys take turns. Jobs of more priorities come in the order of the index.
    select tag_sets.namespace, tag_sets.required_tags, fair_queue.priority
      from tag_sets
     cross join lateral (
           select t.priority from jobs_fairturn t
            where t.namespace = tag_sets.namespace and t.required_tags = tag_sets.required_tags and t.key = ''
            order by t.at desc limit {{FAIR_QUEUES_LIMIT}}) fair_queue
),
known_floors as (
    select tag_sets.namespace, tag_sets.required_tags, known_floor.*
      from tag_sets join known on known.tags = tag_sets.required_tags
     cross join lateral jsonb_to_recordset(known.floors) as known_floor (priority int, fair bool, turn float8, at timestamptz, id uuid)
),
floors as materialized (
    -- The first waiting job of each known priority, whatever filters or locks this worker meets. In a fair queue that is
    -- the first without a turn (up to `last` 0), and the first with one.
    select part.namespace, part.required_tags, part.priority, part.fair, part.last, oldest.turn, oldest.available_at, oldest.id
      from (select f.namespace, f.required_tags, f.priority, f.fair, f.turn, f.at, f.id,
                   case when f.fair or q.priority is null then 'infinity'::float8 else 0 end as last
              from known_floors f left join fair_queues q using (namespace, required_tags, priority)
             where q.priority is not null or not f.fair
             union all
            select q.namespace, q.required_tags, q.priority, beginning.fair, beginning.turn, '-infinity', '00000000-0000-0000-0000-000000000000',
                   case when beginning.fair then 'infinity'::float8 else 0 end
              from fair_queues q cross join (values (false, 0::float8), (true, 1)) beginning (fair, turn)
             where not exists (select from known_floors f
                                where f.required_tags = q.required_tags and f.priority = q.priority and f.fair = beginning.fair)) part
      left join lateral (
           select j.turn, j.available_at, j.id from jobs_workerjob j
            where {{is_claimable(j)}} and j.namespace = part.namespace
              and j.required_tags = part.required_tags and j.priority = part.priority
              and (j.turn, j.available_at, j.id) >= (part.turn, part.at, part.id) and j.turn <= part.last
            order by j.turn, j.available_at, j.id limit 1) oldest on true
),
segments as materialized (
    -- Parts of the queue of each set in claim order: a known priority from its first waiting job, or all priorities
    -- between two known ones.
    select namespace, required_tags, priority::bigint as most, priority::bigint as least, fair, last, turn, available_at, id
      from floors where id is not null
     union all
    select namespace, required_tags, edge - 1,
           coalesce(lead(edge) over (partition by namespace, required_tags order by edge desc) + 1, -2147483648), false, null, null, null, null
      from (select namespace, required_tags, 2147483648 as edge from tag_sets
             union all select namespace, required_tags, priority from floors) edges
),
picked_jobs as (
    select id as job_id, required_tags, priority, limits, turn, worker_slots
      from (
    select waiting_jobs.*,
           row_number() over (partition by waiting_jobs.priority, waiting_jobs.fair, case when waiting_jobs.fair then waiting_jobs.required_tags end
                              order by waiting_jobs.turn, waiting_jobs.available_at, waiting_jobs.id) as place
      from worker
     cross join tag_sets
     cross join lateral (
           -- The segments come in claim order, and no segment is read once there are enough jobs.
           select in_segment.*, segment.fair, tag_sets.required_tags
             from (select * from segments
                    where segments.required_tags = tag_sets.required_tags and segments.most >= segments.least
                    order by segments.most desc) segment
            cross join lateral (
                  select * from (
                   select j.id, j.priority, j.turn, j.available_at, {{all_limits(j)}} as limits, j.worker_slots
                     from jobs_workerjob j
                    where segment.id is not null and {{is_claimable(j)}}
                      and j.namespace = tag_sets.namespace and j.required_tags = tag_sets.required_tags and j.priority = segment.most
                      and (j.turn, j.available_at, j.id) >= (segment.turn, segment.available_at, segment.id) and j.turn <= segment.last
                      and {{may_be_claimed_by(worker, j)}} and {{may_have_slots(worker, j)}}
                    order by j.turn, j.available_at, j.id
                    limit coalesce((select greatest(jobs, 0) from capacity), 0)
                      for no key update skip locked) of_priority
                   union all
                  select * from (
                   select j.id, j.priority, j.turn, j.available_at, {{all_limits(j)}} as limits, j.worker_slots
                     from jobs_workerjob j
                    where segment.id is null and {{is_claimable(j)}}
                      and j.namespace = tag_sets.namespace and j.required_tags = tag_sets.required_tags and j.priority <= segment.most
                      and j.priority >= segment.least
                      and {{may_be_claimed_by(worker, j)}} and {{may_have_slots(worker, j)}}
                    order by j.priority desc, j.turn, j.available_at, j.id
                    limit coalesce((select greatest(jobs, 0) from capacity), 0)
                      for no key update skip locked) of_others
                  ) in_segment
            -- Twice as many in a fair queue, so that jobs without a turn leave room for those with one.
            limit coalesce((select greatest(jobs, 0) * case when exists (select from fair_queues) then 2 else 1 end from capacity), 0)
           ) waiting_jobs) placed
     order by priority desc, place, fair = (select random() < 0.5), case when fair then random() end, available_at, id
     limit coalesce((select greatest(jobs, 0) from capacity), 0)
),
seen as materialized (
    -- Jobs of transactions that commit late are older than those that others see already. So no floor is younger than
    -- {{FLOOR_AGE}} s.
    select jsonb_build_object(
               'namespace', (select namespace from worker),
               'sets', (select jsonb_agg(distinct to_jsonb(walk.required_tags)) from walk where walk.required_tags is not null),
               'floors', (select jsonb_agg(jsonb_build_array(to_jsonb(floors.required_tags), floors.priority, floors.fair,
                                 case when is_old then floors.turn else 0 end,
                                 case when is_old then floors.available_at else youngest.at end,
                                 case when is_old then floors.id else '00000000-0000-0000-0000-000000000000' end))
                            from (select clock_timestamp() - make_interval(secs => {{FLOOR_AGE}}) as at) youngest
                           cross join floors
                           -- A job that gets a turn is announced, so a floor among turns may be young.
                           cross join lateral (select floors.fair or floors.turn = 0 and floors.available_at < youngest.at as is_old) age
                           where floors.id is not null or not floors.fair),
               'found', (select jsonb_agg(distinct jsonb_build_array(to_jsonb(picked_jobs.required_tags), picked_jobs.priority))
                           from picked_jobs)) as places
      from worker where %(known)s::jsonb is not null and exists (select from capacity)
),
in_order as materialized (
    select *, sum(worker_slots) over (order by place) as slots
      from (select job_id, limits, turn, worker_slots, row_number() over () as place from picked_jobs) picked_jobs
),
fitting as (
    -- Only as many jobs as fit into one response, but always the first one, and into the free slots. The next claim gets
    -- the others. A job with limits is not claimed ahead, and no job behind it either, so that it gets the next free slot
    -- of the worker.
    select sized.job_id, sized.place, sized.limits, sized.turn
      from (select picked_jobs.job_id, picked_jobs.place, picked_jobs.limits, picked_jobs.turn, picked_jobs.slots, size.bytes,
                   sum(size.bytes) over (
                       order by picked_jobs.place rows between unbounded preceding and current row) as total,
                   bool_or(picked_jobs.limits is not null
                           and (picked_jobs.place > capacity.free_jobs or picked_jobs.slots > capacity.free_slots)) over (
                       order by picked_jobs.place) as waits
              from in_order picked_jobs
             cross join capacity
             cross join lateral (
                   select octet_length(j.action::text) + coalesce(octet_length(j.payload::text), 0)
                          + coalesce(octet_length(j.checkpoint::text), 0) as bytes
                     from jobs_workerjob j where j.id = picked_jobs.job_id offset 0
                   ) size
           ) sized
     where sized.total - sized.bytes < %(most)s and sized.slots <= (select slots from capacity) and not sized.waits
),
jobs_without_turn as materialized (
    -- Jobs of fair keys that never had a turn: their time to start has come, or the rule is new.
    select fitting.job_id as job, min(fair_keys.key) as key
      from fitting
     cross join lateral jsonb_object_keys(fitting.limits) key_of_job (key)
      join (select needed.key
              from (select distinct key_of_any.key
                      from fitting cross join lateral jsonb_object_keys(fitting.limits) key_of_any (key)
                     where fitting.limits is not null and fitting.turn = 0 and (select {{keys_take_turns}})) needed
             where fair_weight(needed.key, (select worker.namespace from worker)) is not null) fair_keys using (key)
     where fitting.limits is not null and fitting.turn = 0
     group by fitting.job_id
),
granted_slots as materialized (
    -- A job with limits gets all its slots or none. The function is not called if no job of this claim has limits. Nor are
    -- reserved slots looked up if no execution waits.
    select granted.job, granted.missing
      from (select array_agg(fitting.job_id order by fitting.place) as jobs,
                   array_agg(fitting.limits order by fitting.place) as limits
              from fitting where fitting.limits is not null and fitting.job_id not in (select job from jobs_without_turn)
            having count(*) > 0) limited
     cross join lateral grant_slots(limited.jobs, limited.limits, (select worker.namespace from worker), (
           select jsonb_object_agg(of_key.key, {{reserved_slots(of_key)}})
             from (select distinct needed.key, (select worker.namespace from worker) as namespace
                     from unnest(limited.limits) of_job (limits) cross join lateral jsonb_object_keys(of_job.limits) needed (key)
                    where (select {{executions_wait}})) of_key)) granted
),
jobs_to_park as (
    select job, missing from granted_slots where missing is not null
     union all
    select job, key from jobs_without_turn
),
parked_jobs as (
    update jobs_workerjob j
       set parked_by = jsonb_build_object('limit', jobs_to_park.missing), limits = fitting.limits
      from jobs_to_park join fitting on fitting.job_id = jobs_to_park.job
     where j.id = any(array[jobs_to_park.job])
 returning j.limits
),
new_rechecks as (
    insert into jobs_limitrecheck (key) select distinct keys.key from parked_jobs, jsonb_object_keys(parked_jobs.limits) keys (key)
),
claimed_jobs as (
    update jobs_workerjob j
       set state = 'CLAIMED', attempt_id = uuid7(), attempt_count = j.attempt_count + 1,
           limits = case when (select {{rules_add_keys}}) then (select fitting.limits from fitting where fitting.job_id = j.id)
                         else j.limits end
     where j.id = any(array(select job_id from fitting
                             where limits is null or job_id in (select job from granted_slots where missing is null)))
 returning j.attempt_id as id, j.attempt_count as number, j.id as job_id, j.limits, j.worker_slots, j.namespace, j.required_tags, j.priority, j.turn
),
started_turns as (
    -- Set the current turns of queues. If another claim does that now, the next one sets them.
    update jobs_fairturn t
       set turn = started.turn, at = clock_timestamp()
      from (select queue.id, started.turn
              from (select namespace, required_tags, priority, max(turn) as turn
                      from claimed_jobs where turn >= 1 group by namespace, required_tags, priority) started
             cross join lateral (
                   select q.id from jobs_fairturn q
                    where q.namespace = started.namespace and q.required_tags = started.required_tags
                      and q.priority = started.priority and q.key = '' and q.turn < started.turn
                      for no key update skip locked) queue) started
     where t.id = any(array[started.id])
),
new_slots as (
    insert into jobs_limitslot (key, namespace, attempt_id, amount)
    select needed.key, claimed_jobs.namespace, claimed_jobs.id, needed.value::int
      from claimed_jobs cross join lateral jsonb_each_text(claimed_jobs.limits) needed
     where claimed_jobs.limits is not null
),
new_attempts as (
    insert into jobs_attempt (id, job_id, number, worker_slots, server_id, request_id, alive_observed)
    select id, job_id, number, worker_slots, %(server)s, %(request)s, (select observed_now()) from claimed_jobs
),
given_attempts as (
    select id, number, job_id from claimed_jobs
    union all
    select id, number, job_id from repeated_claim where state in {{LIVE}}
)
select coalesce(worker.id, (select server_id from repeated_claim limit 1)) as server,
       (select obstacle from caller) as obstacle, given_attempts.id, given_attempts.number, j.id as job, j.kind,
       j.action, j.payload, j.payload_from, j.timeout_seconds, j.execution_id as execution, j.step, j.checkpoint,
       j.traceparent, j.attempt_traceparent as former_traceparent, j.isolation, j.worker_slots,
       case when row_number() over (order by j.priority desc, j.turn, j.available_at, j.id) = 1 then (select places from seen) end as seen,
       (select count(*) from parked_jobs) as parked,
       (select worker_slots from in_order where slots > (select slots from capacity) order by place limit 1) as slots_wanted
  from (select 1) single_row
  left join worker on true
  left join given_attempts on true
  left join lateral (select * from jobs_workerjob j where j.id = given_attempts.job_id offset 0) j on true
 order by j.priority desc, j.turn, j.available_at, j.id
