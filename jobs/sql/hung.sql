-- Unmatched jobs that waited too long, a batch, locked if they wait still and have not waited anew.
hung as (
    select held.id
      from unmatched j
     cross join liveness_clock clock
      join jobs_workerjob held on held.id = j.id and held.state = 'PENDING' and held.pending_observed = j.pending_observed
     where not {{waits}}
       and clock.reading - j.pending_observed > %(unmatched_after)s
       and j.available_at < clock_timestamp() - make_interval(secs => %(unmatched_after)s)
       and not exists (select from liveness_instance where maintenance_since is not null)
     order by held.id
     limit %(batch)s
       for update of held skip locked
)
