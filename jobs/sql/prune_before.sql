-- The moments before which things are past their retention (seconds; null keeps all), by one reading of the clock.
with clock as materialized (select clock_timestamp() as now)
select now - make_interval(secs => %(jobs)s) as jobs,
       now - make_interval(secs => %(executions)s) as executions,
       now - make_interval(secs => %(servers)s) as servers,
       now - make_interval(secs => %(events)s) as events,
       now - make_interval(secs => %(server_heartbeats)s) as server_heartbeats,
       now - make_interval(secs => %(attempt_heartbeats)s) as attempt_heartbeats
  from clock
