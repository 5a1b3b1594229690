-- The heartbeat of a server that has no attempts to speak of.
with {{beat}}
select * from beat
