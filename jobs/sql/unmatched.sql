-- Pending jobs that waited too long and that no alive worker has the tags for: one that is stale, cordoned, draining or
-- full counts as a match, for it may come back. Judged once per set of tags, not once per job.
hopeless as (
    select tag_sets.tags from tag_sets
     where tag_sets.tags is not null
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and tag_sets.tags <@ s.tags)
),
unmatched as (
    select j.id
      from hopeless
      join jobs_workerjob j on j.state = 'PENDING' and j.required_tags = hopeless.tags
     cross join liveness_clock clock
     where j.unmatched = 'fail'
       and clock.reading - j.pending_observed > %(unmatched_after)s
       and j.available_at < clock_timestamp() - make_interval(secs => %(unmatched_after)s)
       and not exists (select from liveness_instance where maintenance_since is not null)
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
     order by j.id
     limit %(batch)s
       for update of j skip locked
)
