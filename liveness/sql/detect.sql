-- Alive servers that were silent for longer than their own timeout become DISCONNECTED.
-- A heartbeat that holds its row is skipped; one that has just committed fails the condition, which is
-- judged again on the row as it is then. Either way the heartbeat wins.
with silent as (
    select s.id, clock_timestamp() - coalesce(s.last_heartbeat_at, s.created_at) as silence
      from liveness_server s
     where s.state in {{ALIVE}}
       and s.created_at <= clock_timestamp() - make_interval(secs => %(initial_delay)s)
       and coalesce(s.last_heartbeat_at, s.created_at) < clock_timestamp() - make_interval(secs => s.timeout)
     order by s.id
       for no key update skip locked
)
update liveness_server s
   set state = 'DISCONNECTED',
       state_changed_at = clock_timestamp(),
       state_actor = 'liveness',
       state_reason = format('silent for %%s s, its timeout is %%s s',
                             round(extract(epoch from silent.silence), 1), s.timeout)
  from silent
 where s.id = silent.id
returning s.id, s.name, s.state_reason as reason, extract(epoch from silent.silence)::float8 as silence
