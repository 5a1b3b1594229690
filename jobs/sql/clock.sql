-- statement: follow_clock
-- Move jobs back by the time that the database's clock was set back, so that they do not wait until it has caught up.
-- Called at the beginning of a liveness check. Moved are jobs that were already due, and jobs that wait for a delay
-- (a retry, a recovery) to pass. A future moment that a client chose stays. The row of the clock is locked and reset
-- in the same statement, so each jump is applied once.
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
           -- The job was due before the jump. Jobs that were submitted after the jump and before this check are not
           -- moved.
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
moved_buckets as (
    -- The starts of limits that were due before the jump are due again at their rate.
    update jobs_limitbucket b set at = clock_timestamp() from set_back where b.at > clock_timestamp()
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_name, action, actor, reason)
    select 'instance', 'database', 'clock_set_back', 'liveness', format('by %%s s', round(by::numeric)) from set_back
)
select by, (select count(*) from moved_jobs) as jobs from set_back

-- statement: read_clock
-- Return the database's clock.
-- returns: now timestamptz
select clock_timestamp() as now
