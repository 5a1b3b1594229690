-- statement: cancel_jobs_past_deadline
-- Cancel jobs past their deadline whose `on_deadline` is `cancel`, one batch, and count them. Called by the sweep. A job
-- that waits ends now. The worker of a live job is asked to stop it; if the job completes first, that counts.
-- takes: only uuid[], batch bigint, late_after float8
-- returns: state text, jobs bigint, executions uuid[]|null, evaluations uuid[]|null, listed uuid[]
-- row: SweptJobs
with jobs_to_cancel as (
    select j.id
      from (select id from jobs_workerjob
             where finished_at is null and deadline_at <= {{deadlines_judged_until}} and on_deadline = 'cancel'
               and cancel_requested_at is null
               and (%(only)s::uuid[] is null or id = any(%(only)s))
             order by deadline_at) due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and {{can_be_cancelled(j)}} and {{root_is_locked(j)}}
              for no key update skip locked
           ) j
     limit %(batch)s
),
-- due: select id from jobs_to_cancel
cancelled_jobs as (
    update jobs_workerjob j
       set state = case when j.attempt_id is null then 'CANCELLED' else j.state end,
           finished_at = case when j.attempt_id is null then clock_timestamp() end,
           cancel_requested_at = case when j.attempt_id is not null then clock_timestamp() end,
           cancel_requested_observed = case when j.attempt_id is not null then observed_now() end,
           error = jsonb_build_object('code', 'DEADLINE_MISSED', 'message', {{deadline_words(j)}})
      from jobs_to_cancel
     where j.id = any(array[jobs_to_cancel.id])
 returning j.id as job_id, j.state, j.execution_id, j.step, j.kind, j.error ->> 'message' as reason
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'DEADLINE_MISSED', step, format('%%s: %%s', step, reason)
      from cancelled_jobs where execution_id is not null
)
select state, count(*) as jobs, {{ends_to_propagate}}
  from cancelled_jobs group by state

-- statement: find_executions_past_deadline
-- List running executions past their deadline whose `on_deadline` is `cancel`.
-- takes: after uuid, batch bigint, late_after float8
-- returns: id uuid, message text
-- row: ExecutionPastDeadline
select e.id, {{deadline_words(e)}} as message
  from jobs_execution e
 where e.finished_at is null and e.deadline_at <= {{deadlines_judged_until}} and e.on_deadline = 'cancel'
   and e.state = 'RUNNING' and e.id > %(after)s
 order by e.id
 limit %(batch)s

-- statement: read_missed_deadlines
-- Read the jobs and executions past their deadline, and those cancelled for it within the last `lately` seconds: the
-- number, the newest ids, and the names of ten.
-- takes: lately float8
-- returns: kind text, number bigint, ids text[], named jsonb
-- row: MissedDeadlines
with missed as (
    select 'job' as kind, j.id, {{title_of(j)}} as name from jobs_workerjob j
     where j.finished_at is null and j.deadline_at <= clock_timestamp()
     union all
    select 'job', j.id, {{title_of(j)}} from jobs_workerjob j
     where {{was_cancelled_at_deadline(j)}}
     union all
    select 'execution', e.id, e.name from jobs_execution e
     where e.finished_at is null and e.deadline_at <= clock_timestamp()
     union all
    select 'execution', e.id, e.name from jobs_execution e
     where {{was_cancelled_at_deadline(e)}}
),
placed as (
    select missed.*, row_number() over (partition by kind order by id desc) as place from missed
)
select kind, count(*) as number, array_agg(id::text order by place) filter (where place <= 1000) as ids,
       jsonb_agg(jsonb_build_object('id', id, 'name', name) order by place) filter (where place <= 10) as named
  from placed group by kind order by kind desc
