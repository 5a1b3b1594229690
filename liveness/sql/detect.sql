-- The silent become DISCONNECTED.
with {{silent}}
update liveness_server s
   set state = 'DISCONNECTED',
       state_changed_at = clock_timestamp(),
       state_actor = 'liveness',
       state_reason = format('silent for %%s s, its timeout is %%s s',
                             round(extract(epoch from silent.silence), 1), s.timeout)
  from silent
 where s.id = silent.id
returning s.id, s.name, s.state_reason as reason, extract(epoch from silent.silence)::float8 as silence
