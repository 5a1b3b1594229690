-- statement: raise_attempt_counts
-- Raise `attempt_count` of every open job after the database came to a new timeline, once, before any job is claimed.
-- Attempts of lost transactions have numbers that the database does not know, and no number may be given out twice.
-- takes: by int
-- returns: jobs bigint
with new_timelines as materialized (
    select t.id from liveness_databasetimeline t where t.raised_at is null order by t.id for update
),
open_jobs as materialized (
    select j.id from jobs_workerjob j
     where j.state in {{OPEN}} and exists (select from new_timelines)
     order by j.id
       for no key update of j
),
raised_jobs as (
    update jobs_workerjob j set attempt_count = j.attempt_count + %(by)s
      from open_jobs where j.id = any(array[open_jobs.id])
 returning j.id
),
raised_timelines as (
    update liveness_databasetimeline t set raised_at = clock_timestamp()
      from new_timelines where t.id = any(array[new_timelines.id])
 returning t.id
)
select (select count(*) from raised_jobs) as jobs from (select count(*) from raised_timelines) finished where finished.count > 0

-- statement: read_new_timeline
-- Return the timeline of the database since `after_restore` was last run, if it is a new one.
-- returns: timeline int, last_change_at timestamptz|null, lost_bytes bigint|null
select t.timeline, t.last_change_at, t.lost_bytes
  from (select t.*, lag(t.id) over (order by t.id) as former from liveness_databasetimeline t order by t.id desc limit 1) t
 where t.former is not null
   and t.at > coalesce((select max(e.at) from liveness_serverevent e
                         where e.subject_type = 'instance' and e.action = 'after_restore'), '-infinity')
