-- Pending jobs that were good until a moment that has passed.
late as (
    select j.id
      from (select id from jobs_workerjob
             where state = 'PENDING' and good_until < clock_timestamp()
               and (%(only)s::uuid[] is null or id = any(%(only)s))
             order by id) due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and j.state = 'PENDING' and j.good_until < clock_timestamp() and {{root_held}}
              for no key update skip locked
           ) j
     limit %(batch)s
)
