-- Alive servers that were silent for longer than their own timeout become DISCONNECTED.
-- A heartbeat that holds its row is skipped; one that has just committed fails the condition, which is
-- judged again on the row as it is then. Either way the heartbeat wins.
silent as (
    select s.id, clock_timestamp() - coalesce(s.last_heartbeat_at, s.created_at) as silence
      from liveness_server s
     where s.state in {{ALIVE}}
       and s.created_at <= clock_timestamp() - make_interval(secs => %(initial_delay)s)
       and coalesce(s.last_heartbeat_at, s.created_at) < clock_timestamp() - make_interval(secs => s.timeout)
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update skip locked
)
