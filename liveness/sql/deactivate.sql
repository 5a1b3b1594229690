-- What was seen NOT_RUNNING becomes INACTIVE.
with {{seen}}
update liveness_server s
   set state = 'INACTIVE', state_actor = 'liveness', state_reason = 'NOT_RUNNING since an earlier check'
  from seen
 where s.id = seen.id
returning s.id, s.name, s.state_reason as reason
