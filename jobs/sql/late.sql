-- Pending jobs that were good until a moment that has passed.
late as (
    select j.id from jobs_workerjob j
     where j.state = 'PENDING' and j.good_until < clock_timestamp()
       and (%(only)s::uuid[] is null or j.id = any(%(only)s))
     order by j.id
     limit %(batch)s
       for update skip locked
)
