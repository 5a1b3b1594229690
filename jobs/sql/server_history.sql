-- statement: read_server_history
-- Read the history of one server, one row for each of `points` steps of `step` seconds: how its attempts ended, the slots
-- that they held on average, the longest time between two heartbeats that ended in the step, and the CPU and memory use
-- of the machine in its heartbeats. Only the latest `attempts_read` attempts and `beats_read` heartbeats are read. Steps
-- before those are unknown (null). `oldest` is the first id of attempts that are read; attempts that the server still
-- holds are read too.
-- takes: server uuid, since timestamptz, now timestamptz, step float8, points int, oldest uuid,
--   attempts_read bigint, beats_read bigint
-- returns: place int, completed bigint|null, failed bigint|null, others bigint|null, slots_used float8|null, longest_gap float8|null,
--   cpu_average float8|null, cpu_highest int|null, memory_average float8|null, memory_highest int|null
-- row: ServerStep
with period as materialized (
    select since, since + make_interval(secs => step * points) as until, now, step, points
      from (select %(since)s::timestamptz as since, %(now)s::timestamptz as now, %(step)s::float8 as step, %(points)s::int as points) given
),
last_attempts as materialized (
    select a.id, a.state, a.claimed_at, a.finished_at, a.worker_slots
      from jobs_attempt a
     where a.server_id = %(server)s and a.id >= %(oldest)s::uuid
     order by a.id desc limit %(attempts_read)s
),
attempts as materialized (
    select * from last_attempts
     union
    select a.id, a.state, a.claimed_at, a.finished_at, a.worker_slots
      from jobs_attempt a where a.server_id = %(server)s and {{is_live(a)}}
),
last_beats as materialized (
    select h.*, lag(h.at) over (order by h.at) as previous
      from (select h.* from period
             cross join lateral (
                   select h.at, h.cpu_percent, h.memory_percent from liveness_heartbeat h
                    where h.server_id = %(server)s and h.at >= period.since and h.at < period.until
                    order by h.at desc limit %(beats_read)s) h
             union all
            (select h.at, h.cpu_percent, h.memory_percent from liveness_heartbeat h
              where h.server_id = %(server)s and h.at < %(since)s::timestamptz order by h.at desc limit 1)) h
),
known as materialized (
    select case when (select count(*) from last_attempts) = %(attempts_read)s then (select min(claimed_at) from last_attempts) end as attempts_since,
           case when (select count(*) from last_beats) >= %(beats_read)s then (select min(at) from last_beats where previous is not null) end as beats_since
),
ends as (
    select floor(extract(epoch from a.finished_at - period.since) / period.step)::int as place,
           count(*) filter (where a.state = 'COMPLETED') as completed, count(*) filter (where a.state = 'FAILED') as failed,
           count(*) filter (where a.state not in ('COMPLETED', 'FAILED')) as others
      from attempts a cross join period
     where a.finished_at >= period.since and a.finished_at < period.until
     group by 1
),
held as (
    select held_in.place,
           sum(a.worker_slots * greatest(0, extract(epoch from least(coalesce(a.finished_at, period.now), held_in.until)
                                                    - greatest(a.claimed_at, held_in.since)))) as slot_seconds
      from attempts a
     cross join period
     cross join lateral (
           select place, period.since + make_interval(secs => place * period.step) as since,
                  period.since + make_interval(secs => (place + 1) * period.step) as until
             from generate_series(
                      greatest(0, floor(extract(epoch from a.claimed_at - period.since) / period.step))::int,
                      least(period.points - 1, floor(extract(epoch from coalesce(a.finished_at, period.now) - period.since) / period.step))::int
                  ) place) held_in
     where a.claimed_at < period.until and coalesce(a.finished_at, period.now) >= period.since
     group by held_in.place
),
beats as (
    select floor(extract(epoch from last_beats.at - period.since) / period.step)::int as place,
           max(extract(epoch from last_beats.at - last_beats.previous))::float8 as longest_gap,
           avg(last_beats.cpu_percent)::float8 as cpu_average, max(last_beats.cpu_percent)::int as cpu_highest,
           avg(last_beats.memory_percent)::float8 as memory_average, max(last_beats.memory_percent)::int as memory_highest
      from last_beats cross join period
     where last_beats.at >= period.since
     group by 1
)
select place,
       case when steps.knows_attempts then coalesce(ends.completed, 0) end as completed,
       case when steps.knows_attempts then coalesce(ends.failed, 0) end as failed,
       case when steps.knows_attempts then coalesce(ends.others, 0) end as others,
       case when steps.knows_attempts then coalesce(held.slot_seconds, 0) / steps.elapsed end::float8 as slots_used,
       case when steps.knows_beats then beats.longest_gap end as longest_gap,
       case when steps.knows_beats then beats.cpu_average end as cpu_average,
       case when steps.knows_beats then beats.cpu_highest end as cpu_highest,
       case when steps.knows_beats then beats.memory_average end as memory_average,
       case when steps.knows_beats then beats.memory_highest end as memory_highest
  from period
 cross join generate_series(0, period.points - 1) place
 cross join known
 cross join lateral (
       select coalesce(step.since >= known.attempts_since, true) and step.since <= period.now as knows_attempts,
              coalesce(step.since >= known.beats_since, true) as knows_beats,
              greatest(0.001, least(period.step, extract(epoch from period.now - step.since))) as elapsed
         from (select period.since + make_interval(secs => place * period.step) as since) step) steps
  left join ends using (place)
  left join held using (place)
  left join beats using (place)
 order by place
