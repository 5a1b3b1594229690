-- Unmatched jobs that waited too long, a batch, locked if they wait still and have not waited anew.
due as materialized (
    select j.id, j.pending_observed
      from unmatched j
     cross join liveness_clock clock
     where not {{waits}}
       and clock.reading - j.pending_observed > %(unmatched_after)s
       and j.available_at < clock_timestamp() - make_interval(secs => %(unmatched_after)s)
       and not exists (select from liveness_instance where maintenance_since is not null)
     order by j.id
),
hung as (
    select held.id
      from due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and j.state = 'PENDING' and j.pending_observed = due.pending_observed and {{root_held}}
              for no key update skip locked
           ) held
     limit %(batch)s
)
