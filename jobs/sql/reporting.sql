-- statement: find_consequential_attempts
-- List the live attempts among `attempts` whose end has consequences for an execution or a trigger. Called for starts
-- and ends that were not applied, to find those that need `write_consequential_ends`.
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
-- Lock the roots of the steps whose attempts are reported on. Called before `lock_reported_jobs`, in the same round
-- trip, and only for ends with consequences.
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
-- Lock the jobs whose attempts are reported on. The next statements of the round trip then see the current jobs,
-- executions and log lines. So a report that is sent twice at the same time is applied once.
-- takes: attempts uuid[], server uuid
-- returns: id uuid
select j.id
  from jobs_workerjob j
 where j.id = any({{reported_jobs}}) and j.attempt_id = any(%(attempts)s::uuid[])
 order by j.id
   for no key update

-- step: owned_jobs -> owned
-- The fence: the jobs of the reported attempts that this server still holds. Reports on other attempts are not applied.
-- `offset 0` makes PostgreSQL look up each row by its key, also with poor statistics.
owned as materialized (
    select j.*
      from (select distinct unnest(%(attempts)s::uuid[]) as attempt) reported
     cross join lateral (select a.job_id, a.server_id from jobs_attempt a where a.id = reported.attempt offset 0) a
     cross join lateral (select * from jobs_workerjob j where j.id = a.job_id offset 0) j
     where a.server_id = %(server)s and j.attempt_id = reported.attempt
       and exists (select from liveness_server s
                    where s.id = %(server)s and s.token_version = %(version)s and not {{liveness.has_ended(s)}})
)

-- prepared statement: start_attempts
-- Set claimed attempts and their jobs to RUNNING. Called under `lock_reported_jobs`.
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
              -- Checked again, because a slow claim does not see what was taken from another server since it began.
              and not {{waits_for_previous_attempt(owned)}}))
 returning j.attempt_id
)
update jobs_attempt a
   set state = 'RUNNING', started_at = clock_timestamp(), started_observed = (select observed_now()),
       alive_observed = (select {{liveness.heard_now(s)}} from liveness_server s where s.id = %(server)s)
 where a.id = any(array(select attempt_id from begun_jobs))
returning a.id

-- prepared statement: store_progress
-- Store the progress and the message of running attempts. Called under `lock_reported_jobs`.
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

-- prepared statement: store_stacks
-- Store the stacks of running attempts. Called under `lock_reported_jobs`.
-- takes: stacks jsonb, server uuid, version int, attempts uuid[]
-- returns: id uuid
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(stacks)s::jsonb) as r(attempt uuid, text text)
)
update jobs_attempt a
   set stack = reports.text, stack_at = clock_timestamp(), dump_requested_at = null
  from reports join owned on owned.attempt_id = reports.attempt
 where a.id = any(array[reports.attempt]) and a.state = 'RUNNING'
returning a.id

-- prepared statement: store_checkpoints
-- Store checkpoints of running attempts for the next attempts of their jobs (null: delete the checkpoint). Called
-- under `lock_reported_jobs`.
-- takes: checkpoints jsonb, server uuid, version int, attempts uuid[]
-- returns: id uuid
-- counted:
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(checkpoints)s::jsonb) as r(attempt uuid, value jsonb)
),
stored_checkpoints as (
    update jobs_workerjob j
       set checkpoint = reports.value, checkpoint_at = case when reports.value is not null then clock_timestamp() end
      from reports join owned on owned.attempt_id = reports.attempt
     where j.id = any(array[owned.id]) and j.state = 'RUNNING'
 returning j.attempt_id
)
-- counted: , byte_changes as (
-- counted:     select owned.owner_id as owner,
-- counted:            coalesce(octet_length(reports.value::text), 0) - coalesce(octet_length(owned.checkpoint::text), 0) as bytes
-- counted:       from stored_checkpoints join reports on reports.attempt = stored_checkpoints.attempt_id
-- counted:       join owned on owned.attempt_id = reports.attempt
-- counted: ),
-- counted: {{counted_bytes}}
select attempt_id as id from stored_checkpoints

-- prepared statement: store_log_lines
-- Store lines that the code of running attempts wrote, in order. Called under `lock_reported_jobs`. The last line of an
-- attempt has its number and the sequence of its report, so lines are never counted. If the owner of a job has no room
-- left, one line is stored that explains why the others are not kept.
-- takes: logs jsonb, server uuid, version int, attempts uuid[], lines_kept bigint
-- returns: place int, state text
-- row: StoredLines
-- counted: no_room text, stored_limit bigint
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(logs)s::jsonb)
        as r(place int, attempt uuid, stream text, sequence int, lines jsonb)
),
last_lines as materialized (
    select owned.attempt_id as id, coalesce(last.number, 0) as number, last.sequence
-- counted:            , {{has_no_room(owned)}} as has_no_room, coalesce(last.line = %(no_room)s, false) as is_noted
      from owned
      left join lateral (
           select l.* from jobs_logline l where l.attempt_id = owned.attempt_id order by l.id desc limit 1
           ) last on true
     where owned.attempt_id in (select attempt from reports) and owned.state = 'RUNNING'
),
numbered_reports as (
    select reports.*, last_lines.number,
-- counted:            last_lines.has_no_room, last_lines.is_noted,
           greatest(last_lines.sequence, max(reports.sequence) over (
               partition by reports.attempt order by reports.place
                rows between unbounded preceding and 1 preceding)) as last
      from reports join last_lines on last_lines.id = reports.attempt
),
new_reports as (
    select place, attempt, stream, number, greatest(last, sequence) as sequence,
-- counted:            case when has_no_room and (is_noted or row_number() over (partition by attempt order by place) > 1) then '[]'
-- counted:                 when has_no_room then jsonb_build_array(%(no_room)s) else
           lines
-- counted:            end as lines
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
-- counted:  returning attempt_id, line
)
-- counted: , byte_changes as (
-- counted:     select owned.owner_id as owner, octet_length(stored_lines.line) as bytes
-- counted:       from stored_lines join owned on owned.attempt_id = stored_lines.attempt_id
-- counted:      where owned.kind <> 'CELERY'
-- counted: ),
-- counted: {{counted_bytes}}
select place, 'RUNNING' as state from new_reports

-- prepared statement: finish_attempts
-- End attempts that their worker reports as ended. Called under `lock_reported_jobs`. The end of a step or of a
-- trigger's job has consequences in the same transaction, so it is applied only if the caller handles them.
-- takes: ended jsonb, server uuid, version int, attempts uuid[], with_consequences bool, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid|null,
--   kind text, is_limited bool
-- row: EndedAttempt
-- counted:
with {{owned_jobs}},
reports as (
    select * from jsonb_to_recordset(%(ended)s::jsonb)
        as r(attempt uuid, event text, output jsonb, error jsonb, reason text, begun bool)
),
held as materialized (
    select owned.id as job_id, owned.attempt_id as id,
           -- Its worker started it and gave it back before the code began: nothing ran.
           case when reports.event = 'RELEASED' and not reports.begun then 'CLAIMED' else owned.state end as was,
           reports.event, reports.output, reports.error,
           coalesce(reports.reason, reports.error ->> 'code', '') as reason, 'server' as actor,
           %(server)s::uuid as server_id, owned.cancel_requested_at, owned.on_worker_lost, owned.resubmissions,
           owned.retries, owned.available_at
      from reports join owned on owned.attempt_id = reports.attempt
     where {{consequences_are_handled(owned)}}
       and case reports.event
               when 'COMPLETED' then owned.state = 'RUNNING'
               when 'FAILED' then owned.state = 'RUNNING'
               when 'CANCELLED' then owned.cancel_requested_at is not null
               -- A start that `start_attempts` refused ends the attempt, because its code never begins.
               when 'STARTED' then owned.state = 'CLAIMED' and {{stopped_by_execution(owned)}}
               else true
           end
),
{{end_attempts}}
-- counted: , byte_changes as (
-- counted:     select owned.owner_id as owner, octet_length(ended_attempts.output::text) as bytes
-- counted:       from ended_attempts join owned on owned.id = ended_attempts.job_id
-- counted:      where ended_attempts.job_state = 'COMPLETED' and ended_attempts.output is not null
-- counted: ),
-- counted: {{counted_bytes}}
{{list_ended_attempts}}
