-- The next events in the order of their ids, how many of them are past their retention, and whether to look on.
select (array_agg(e.id order by e.id desc))[1] as last,
       count(*) filter (where e.at < %(events)s) as due,
       bool_or(e.at < %(events)s) as has_old
  from (select id, at from liveness_serverevent where id > %(after)s order by id limit %(batch)s) e
