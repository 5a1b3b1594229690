-- Lost servers with nothing left, of which that was not known yet.
newly_empty as (
    select s.id, clock.tick from liveness_server s, liveness_clock clock
     where {{emptied}}
       and (s.emptied_tick is null or s.emptied_tick < s.state_changed_tick)
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
