-- statement: find_consequential_attempts
-- Those of the live attempts whose end moves an execution or a trigger on.
-- takes: attempts uuid[], server uuid
-- returns: id uuid
select a.id
  from jobs_attempt a
 cross join lateral (
       select from jobs_workerjob j
        where j.id = a.job_id and (j.execution_id is not null or j.kind = 'TRIGGER') offset 0
       ) moving
 where a.id = any(%(attempts)s::uuid[]) and a.server_id = %(server)s and {{is_live(a)}}

-- statement: lock_reported_roots
-- Hold the trees of executions whose steps' attempts are reported on.
-- takes: attempts uuid[], server uuid
-- returns: id uuid
select r.id
  from jobs_execution r
 where r.id = any(array(
       select e.root_id from jobs_execution e
        where e.id = any(array(
              select j.execution_id from jobs_workerjob j
               where j.id = any({{reported_jobs}}) and j.attempt_id = any(%(attempts)s::uuid[])))))
 order by r.id
   for no key update

-- statement: lock_reported_jobs
-- Hold the jobs whose attempts are reported on. A statement of its own: the next ones then see them, their executions and
-- their lines as they are by now, and the same report sent twice at once is applied once.
-- takes: attempts uuid[], server uuid
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.id = any({{reported_jobs}}) and j.attempt_id = any(%(attempts)s::uuid[])
 order by j.id
   for no key update

-- step: owned_jobs -> owned
-- The jobs whose live attempts, among those that are reported on, are still the caller's to speak of. Each by its key,
-- whatever the statistics say.
owned as materialized (
    select j.*
      from (select distinct unnest(%(attempts)s::uuid[]) as attempt) reported
     cross join lateral (select a.job_id, a.server_id from jobs_attempt a where a.id = reported.attempt offset 0) a
     cross join lateral (select * from jobs_workerjob j where j.id = a.job_id offset 0) j
     where a.server_id = %(server)s and j.attempt_id = reported.attempt
       and exists (select from liveness_server s
                    where s.id = %(server)s and s.token_version = %(version)s and s.state not in {{RETIRED}})
)

-- statement: start_attempts
-- The code of these claimed attempts begins; their jobs are held by `lock_reported_jobs`.
-- takes: started uuid[], traces jsonb, server uuid, version int, attempts uuid[]
-- returns: id uuid
with {{owned_jobs}},
begun_jobs as (
    update jobs_workerjob j
       set state = 'RUNNING',
           attempt_traceparent = coalesce(%(traces)s::jsonb ->> j.attempt_id::text, j.attempt_traceparent)
     where j.id = any(array(
           select owned.id from owned
            where owned.attempt_id = any(%(started)s::uuid[]) and owned.state = 'CLAIMED' and not {{stopped_by_execution(owned)}}
              -- A claim that was slow may not have seen what was taken from another meanwhile.
              and not {{waits_for_previous_attempt(owned)}}))
 returning j.attempt_id
)
update jobs_attempt a
   set state = 'RUNNING', started_at = clock_timestamp(), started_observed = (select observed_now()),
       alive_observed = (select {{liveness.heard_now(s)}} from liveness_server s where s.id = %(server)s)
 where a.id = any(array(select attempt_id from begun_jobs))
returning a.id

-- statement: store_progress
-- How far running attempts have come; their jobs are held by `lock_reported_jobs`.
-- takes: progress jsonb, server uuid, version int, attempts uuid[]
-- returns: id uuid
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(progress)s::jsonb) as r(attempt uuid, progress float8, message text)
)
update jobs_attempt a
   set progress = coalesce(reports.progress, a.progress), message = coalesce(reports.message, a.message)
  from reports join owned on owned.attempt_id = reports.attempt
 where a.id = any(array[reports.attempt]) and a.state = 'RUNNING'
returning a.id

-- statement: store_checkpoints
-- What the code of running attempts keeps for their jobs' next attempts; null: nothing any more. Their jobs are held by
-- `lock_reported_jobs`.
-- takes: checkpoints jsonb, server uuid, version int, attempts uuid[]
-- returns: id uuid
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(checkpoints)s::jsonb) as r(attempt uuid, value jsonb)
)
update jobs_workerjob j
   set checkpoint = reports.value, checkpoint_at = case when reports.value is not null then clock_timestamp() end
  from reports join owned on owned.attempt_id = reports.attempt
 where j.id = any(array[owned.id]) and j.state = 'RUNNING'
returning j.attempt_id as id

-- statement: store_log_lines
-- Lines that the code of running attempts wrote, in order; their jobs are held by `lock_reported_jobs`. The last line of an
-- attempt knows how many there are and which report came last, so nothing is ever counted.
-- takes: logs jsonb, server uuid, version int, attempts uuid[], lines_kept bigint
-- returns: place int, state text
-- row: StoredLines
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(logs)s::jsonb)
        as r(place int, attempt uuid, stream text, sequence int, lines jsonb)
),
last_lines as materialized (
    select owned.attempt_id as id, coalesce(last.number, 0) as number, last.sequence
      from owned
      left join lateral (
           select l.number, l.sequence from jobs_logline l where l.attempt_id = owned.attempt_id order by l.id desc limit 1
           ) last on true
     where owned.attempt_id in (select attempt from reports) and owned.state = 'RUNNING'
),
numbered_reports as (
    select reports.*, last_lines.number,
           greatest(last_lines.sequence, max(reports.sequence) over (
               partition by reports.attempt order by reports.place
                rows between unbounded preceding and 1 preceding)) as last
      from reports join last_lines on last_lines.id = reports.attempt
),
new_reports as (
    select place, attempt, stream, lines, number, greatest(last, sequence) as sequence
      from numbered_reports
     where sequence is null or last is null or sequence > last
),
line as (
    select new_reports.attempt, new_reports.stream, new_reports.sequence, text_line.line,
           new_reports.number + row_number() over (
               partition by new_reports.attempt order by new_reports.place, text_line.nth) as number
      from new_reports cross join lateral jsonb_array_elements_text(new_reports.lines) with ordinality as text_line(line, nth)
),
stored_lines as (
    insert into jobs_logline (attempt_id, stream, sequence, number, line)
    select attempt, stream, sequence, number,
           case when number > %(lines_kept)s then '… further lines are not kept' else line end
      from line
     where number <= %(lines_kept)s + 1
     order by attempt, number
)
select place, 'RUNNING' as state from new_reports

-- statement: finish_attempts
-- Attempts end because their worker says so; their jobs are held by `lock_reported_jobs`. The end of a step or of a
-- trigger's job has consequences, which belong into the same transaction: it waits for a caller that sees to them.
-- takes: ended jsonb, server uuid, version int, attempts uuid[], with_consequences bool, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid|null,
--   kind text
-- row: EndedAttempt
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(ended)s::jsonb)
        as r(attempt uuid, event text, output jsonb, error jsonb, reason text)
),
held as materialized (
    select owned.id as job_id, owned.attempt_id as id, owned.state as was, reports.event, reports.output, reports.error,
           coalesce(reports.reason, reports.error ->> 'code', '') as reason, 'server' as actor,
           %(server)s::uuid as server_id, owned.cancel_requested_at, owned.on_worker_lost, owned.resubmissions,
           owned.retries, owned.available_at
      from reports join owned on owned.attempt_id = reports.attempt
     where {{consequences_are_handled(owned)}}
       and case reports.event
               when 'COMPLETED' then owned.state = 'RUNNING'
               when 'FAILED' then owned.state = 'RUNNING'
               when 'CANCELLED' then owned.cancel_requested_at is not null
               -- Its code never begins: `start_attempts` did not let it.
               when 'STARTED' then owned.state = 'CLAIMED' and {{stopped_by_execution(owned)}}
               else true
           end
),
{{end_attempts}}
{{list_verdicts}}
