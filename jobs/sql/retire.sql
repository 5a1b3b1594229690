-- Lost and recovered servers become NOT_RUNNING, in the check after.
with {{recovered}}
update liveness_server s
   set state = 'NOT_RUNNING', state_actor = 'liveness',
       state_reason = 'lost while ' || s.state || ', nothing left to recover'
  from recovered
 where s.id = recovered.id
returning s.id, s.name, s.state_reason as reason
