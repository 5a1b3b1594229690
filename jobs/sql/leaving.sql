-- Lost servers that held nothing at an earlier check, and hold nothing now: either is to be seen for one interval.
leaving as (
    select s.id from liveness_server s, liveness_clock clock
     where {{emptied}}
       and s.emptied_tick >= s.state_changed_tick
       and s.emptied_tick < clock.tick
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
