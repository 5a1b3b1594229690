-- The next heartbeats in the order of their ids, how many of them are past their retention, and whether to look on.
select (array_agg(h.id order by h.id desc))[1] as last,
       count(*) filter (where {{prune_heartbeat_old}}) as due,
       bool_or(h.at < greatest(%(servers)s::timestamptz, %(attempts)s::timestamptz)) as has_old
  from (select id, at, role from liveness_heartbeat where id > %(after)s order by id limit %(batch)s) h
