-- Pending jobs that no alive worker may have: none has their tags, or all that have them gave the job back as not allowed.
-- A worker that is stale, cordoned, draining or full counts, for it may come back. Judged once per set of tags, of which
-- `looked` jobs are looked at (null: all), and one by one where a job was refused, which few are.
hopeless as materialized (
    select tag_sets.tags from tag_sets
     -- What has the empty tag is dispatched by the control plane itself.
     where tag_sets.tags <> array['']
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and tag_sets.tags <@ s.tags)
),
unmatched as (
    select tagged.*
      from hopeless
     cross join lateral (
           select j.* from jobs_workerjob j
            where j.state = 'PENDING' and j.required_tags = hopeless.tags
              and (%(only)s::uuid[] is null or j.id = any(%(only)s))
            -- Along job_to_claim, whatever the statistics say.
            order by j.priority desc, j.available_at, j.id
            limit %(looked)s) tagged
     union all
    select j.*
      from jobs_workerjob j
     where j.state = 'PENDING' and j.refused_by <> '{}' and j.required_tags not in (select tags from hopeless)
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
       and not exists (
           select from liveness_server s
            where s.type = 'WORKER' and s.state in {{ALIVE}} and j.required_tags <@ s.tags
              and s.id <> all(j.refused_by))
)
