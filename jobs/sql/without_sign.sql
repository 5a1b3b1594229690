  from jobs_attempt a
  join liveness_server s on s.id = a.server_id
 cross join liveness_clock clock
 where a.state in {{LIVE}}
   and clock.reading - a.alive_observed
       > case a.state when 'CLAIMED' then %(claimed_stale_after)s::float8 else %(running_stale_after)s::float8 end
