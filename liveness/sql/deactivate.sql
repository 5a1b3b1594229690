-- What an earlier check found NOT_RUNNING becomes INACTIVE: it was to be seen for one interval.
with due as (
    select s.id from liveness_server s, liveness_clock clock
     where s.state = 'NOT_RUNNING' and s.state_changed_at < clock.tick_at
     order by s.id
       for no key update of s skip locked
)
update liveness_server s
   set state = 'INACTIVE', state_changed_at = clock_timestamp(), state_actor = 'liveness',
       state_reason = 'NOT_RUNNING since an earlier check'
  from due
 where s.id = due.id
returning s.id, s.name, s.state_reason as reason
