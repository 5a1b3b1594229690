-- The heartbeat of a server that has no attempts to speak of.
with {{said}},
{{beat}}
select * from beat
