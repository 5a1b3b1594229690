-- step: turns_of_jobs(jobs_to_unpark) -> turns_of_jobs
-- Give jobs of fair keys their turns in their queues, and note the last turn of each key. A queue has the jobs of one
-- namespace, set of required tags and priority. A key takes its next turn 1 / weight after its last one, but not before
-- the current turn of the queue. So an idle key saves up no turns. A job with several fair keys waits for
-- the latest of their turns. A job that has a turn keeps it. Rows of keys are locked in order.
keys_of_jobs as materialized (
    select j.id, j.namespace, j.required_tags, j.priority, j.available_at, key_of_job.key
      from jobs_to_unpark j cross join lateral jsonb_object_keys(j.limits) key_of_job (key)
     where j.turn = 0 and (select {{keys_take_turns}})
),
fair_keys as materialized (
    select needed.key, needed.namespace, weight.weight::float8 as weight
      from (select distinct key, namespace from keys_of_jobs) needed
     -- `offset 0` makes PostgreSQL call the function once for each key.
     cross join lateral (select fair_weight(needed.key, needed.namespace) as weight offset 0) weight
     where weight.weight is not null
),
jobs_of_keys as materialized (
    select j.id, j.namespace, j.required_tags, j.priority, j.key, fair_keys.weight,
           row_number() over (partition by j.key, j.namespace, j.required_tags, j.priority order by j.available_at, j.id) as place,
           count(*) over (partition by j.key, j.namespace, j.required_tags, j.priority) as jobs
      from keys_of_jobs j join fair_keys using (key, namespace)
),
fair_queues as materialized (
    -- A new queue begins at the highest turn of all. So a job that comes back after its queue was forgotten comes soon.
    select q.namespace, q.required_tags, q.priority, current_turn.turn as known_turn,
           coalesce(current_turn.turn, (select max(t.turn) from jobs_fairturn t where t.key = ''), 1) as turn
      from (select distinct namespace, required_tags, priority from jobs_of_keys) q
      left join jobs_fairturn current_turn
        on current_turn.namespace = q.namespace and current_turn.required_tags = q.required_tags
       and current_turn.priority = q.priority and current_turn.key = ''
),
new_queues as (
    insert into jobs_fairturn (namespace, required_tags, priority, key, turn)
    select namespace, required_tags, priority, '', turn from fair_queues where known_turn is null
     order by namespace, required_tags, priority
        on conflict (namespace, required_tags, priority, key) do nothing
 returning id
),
jobs_by_key as materialized (
    select j.namespace, j.required_tags, j.priority, j.key, j.weight, j.jobs, fair_queues.turn
      from jobs_of_keys j join fair_queues using (namespace, required_tags, priority)
     -- New rows of queues are written before those of keys.
     where j.place = 1 and (select count(*) from new_queues) >= 0
),
last_turns as (
    insert into jobs_fairturn as last (namespace, required_tags, priority, key, turn)
    select namespace, required_tags, priority, key, turn + (jobs - 1) / weight from jobs_by_key
     order by namespace, required_tags, priority, key
        on conflict (namespace, required_tags, priority, key) do update
       set at = clock_timestamp(),
           turn = (select greatest(b.turn, last.turn + 1 / b.weight) + (b.jobs - 1) / b.weight from jobs_by_key b
                    where b.key = excluded.key and b.namespace = excluded.namespace
                      and b.required_tags = excluded.required_tags and b.priority = excluded.priority)
 returning last.namespace, last.required_tags, last.priority, last.key, last.turn
),
turns_of_jobs as (
    -- Each job has its row of last_turns. With a full join PostgreSQL hashes or sorts the rows, also if it expects only one.
    select j.id, max(last_turns.turn - (j.jobs - j.place) / j.weight) as turn
      from jobs_of_keys j full join last_turns using (key, namespace, required_tags, priority)
     group by j.id
)

-- statement: drop_past_turns
-- Delete turns that no job needs any more: keys that may take the current turn of their queue, and queues without waiting
-- jobs of fair keys that were not used for a day. One queue always stays: see `turns_of_jobs`. Called by the sweep.
-- returns: key text
delete from jobs_fairturn t
 where t.id = any(array(
       select past.id
         from jobs_fairturn past
         join jobs_fairturn q
           on q.namespace = past.namespace and q.required_tags = past.required_tags and q.priority = past.priority and q.key = ''
        where past.key <> '' and past.turn <= q.turn - 1
           or past.key = '' and past.at < clock_timestamp() - interval '1 day'
              and past.id <> (select highest.id from jobs_fairturn highest where highest.key = '' order by turn desc, id desc limit 1)
              and not exists (
                  select from jobs_workerjob j
                   where {{is_claimable(j)}} and j.namespace = past.namespace
                     and j.required_tags = past.required_tags and j.priority = past.priority and j.turn >= 1)
          for update of past skip locked))
returning t.key
