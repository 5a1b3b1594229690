-- Alive servers that were silent for longer than their own timeout, but for those the brake holds.
-- A heartbeat that holds its row is skipped; one that has just committed fails the condition, which is
-- judged again on the row as it is then. Either way the heartbeat wins.
silent as (
    select s.id, clock.reading - s.heard_observed as silence
      from liveness_server s, liveness_clock clock
     where {{overdue}}
       -- The types are one array, made once: this is judged for each of a hundred thousand.
       and (s.type <> all (array(select brake.type from liveness_brake brake where brake.released_by is null))
            or s.id in (select id from let_go))
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
