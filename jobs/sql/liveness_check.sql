-- statement: retire_servers
-- Set lost servers that hold nothing to NOT_RUNNING. Called in each liveness check. A server must have held nothing at
-- an earlier check too, so that people can see the state before for at least one check interval.
-- takes: only uuid[]
-- returns: id uuid, name text, reason text
-- row: RetiredServer
with servers_to_retire as (
    select s.id from liveness_server s, liveness_clock clock
     where {{holds_nothing_to_recover(s)}}
       and s.emptied_tick >= s.state_changed_tick
       and s.emptied_tick < clock.tick
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
-- due: select id from servers_to_retire
update liveness_server s
   set state = 'NOT_RUNNING', state_actor = 'liveness',
       state_reason = case when s.state = 'TERMINATED_GRACEFULLY' then 'it ended gracefully and holds no attempt'
                           else 'lost while ' || s.state || ', nothing left to recover' end
  from servers_to_retire
 where s.id = any(array[servers_to_retire.id])
returning s.id, s.name, s.state_reason as reason

-- statement: note_empty_servers
-- Record the number of the check in which a lost server was first seen to hold nothing. Called after `retire_servers`.
-- takes: only uuid[]
-- returns: servers bigint
with newly_empty_servers as (
    select s.id, clock.tick from liveness_server s, liveness_clock clock
     where {{holds_nothing_to_recover(s)}}
       and (s.emptied_tick is null or s.emptied_tick < s.state_changed_tick)
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
),
-- due: select id from newly_empty_servers
noted_servers as (
    update liveness_server s
       set emptied_tick = newly_empty_servers.tick
      from newly_empty_servers
     where s.id = any(array[newly_empty_servers.id])
 returning s.id
)
select count(*) as servers from noted_servers
