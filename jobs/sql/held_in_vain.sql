-- Attempts that were taken from a server which cannot run them any more, or was told for long enough.
due as materialized (
    select t.id, t.attempt_id, t.job_id, s.id as server_id, s.name, s.state,
           coalesce({{stops_at}} > clock.reading and s.state not in {{STOPPED}}, false) as disobeys
      from jobs_takenattempt t
      left join liveness_server s on s.id = t.server_id
     cross join liveness_clock clock
     where (s.id is null
            or s.state in {{STOPPED}}
            or {{stops_at}} <= clock.reading
            or t.told_observed + %(cancel_timeout)s <= s.heard_observed)
       and (%(only)s::bigint[] is null or t.id = any(%(only)s))
     order by t.id
       for update of t skip locked
)
