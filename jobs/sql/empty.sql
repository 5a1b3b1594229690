-- Note in which check lost servers were first seen to hold nothing.
with {{newly_empty}}
update liveness_server s
   set emptied_tick = newly_empty.tick
  from newly_empty
 where s.id = newly_empty.id
returning s.id
