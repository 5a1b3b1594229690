-- Lost servers with nothing left become NOT_RUNNING, in the check after.
with {{leaving}}
update liveness_server s
   set state = 'NOT_RUNNING', state_actor = 'liveness',
       state_reason = 'lost while ' || s.state || ', nothing left to recover'
  from leaving
 where s.id = leaving.id
returning s.id, s.name, s.state_reason as reason
