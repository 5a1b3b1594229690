/* alive server s was not heard for two intervals, by either of the clocks of fresh.sql: what is stale is late as well.
   One that was never heard is late as long after its registration */
(s.state in {{ALIVE}}
 and ((select observed_now()) - s.heard_observed >= s.heartbeat_interval * 2
      or extract(epoch from (select clock_timestamp()) - coalesce(s.last_heartbeat_at, s.created_at))
         >= s.heartbeat_interval * 2))
