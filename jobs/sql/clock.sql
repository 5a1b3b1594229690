-- statement: follow_clock
-- The database's clock was set back: what waited for a moment that had come by then, or for some time to pass, is set back
-- with it, so that nothing is hidden until the clock has caught up. A moment that a client chose and that had not come
-- stays as it is. Once for each time that the clock was set back, and all in one statement.
-- returns: by float8, jobs bigint
with set_back as materialized (
    select id, set_back_by as by, credit from liveness_clock where set_back_by > 0 for update
),
followed_clock as (
    update liveness_clock c set set_back_by = 0 from set_back where c.id = set_back.id
),
hidden_jobs as materialized (
    select j.id from jobs_workerjob j, set_back
     where j.state in {{OPEN}} and j.available_at > clock_timestamp()
           -- It had come; but not where the job was submitted after the clock was set back, and before this check.
       and (j.available_at <= clock_timestamp() + make_interval(secs => set_back.by)
            and j.created_at not between clock_timestamp() - make_interval(secs => set_back.credit) and clock_timestamp()
            or j.available_at <= j.created_at + interval '1 s'
            or j.attempt_count > 0)
     order by j.id
       for no key update of j
),
moved_jobs as (
    update jobs_workerjob j
       set available_at = j.available_at - make_interval(secs => set_back.by)
      from hidden_jobs, set_back
     where j.id = any(array[hidden_jobs.id])
 returning j.id
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_name, action, actor, reason)
    select 'instance', 'database', 'clock_set_back', 'liveness', format('by %%s s', round(by::numeric)) from set_back
)
select by, (select count(*) from moved_jobs) as jobs from set_back

-- statement: read_clock
-- The database's clock.
-- returns: now timestamptz
select clock_timestamp() as now
