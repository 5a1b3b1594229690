-- The silent become DISCONNECTED.
with {{let_go}},
{{silent}}
update liveness_server s
   set state = 'DISCONNECTED',
       disconnected_observed = s.heard_observed + silent.silence,
       state_actor = 'liveness',
       state_reason = format('silent for %%s s, its timeout is %%s s', round(silent.silence::numeric, 1), s.timeout)
  from silent
 where s.id = silent.id
returning s.id, s.type, s.name, s.state_reason as reason, silent.silence
