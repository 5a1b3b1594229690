-- NOT_RUNNING since an earlier check: it was to be seen for one interval.
seen as (
    select s.id from liveness_server s, liveness_clock clock
     where s.state = 'NOT_RUNNING' and s.state_changed_tick < clock.tick
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
