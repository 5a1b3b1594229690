-- step: reported_tasks -> reported_tasks
-- List the tasks that a Celery worker reports, each once, with the known job and the known attempt. Tasks belong to the
-- token of the worker. `may_hold` is true if the worker is alive and may hold a task. `offset 0` makes PostgreSQL look
-- up each row by its key, also with poor statistics.
reported_tasks as materialized (
    select r.*, job.id as job_id, known.job_id as known_job_id, known.server_id as known_server_id,
           known.state as known_state, s.token_id as owner_id, s.namespace, s.name as server_name, s.state in {{ALIVE}} or s.state = 'TERMINATING' as may_hold,
           array(select tag from unnest(s.tags) tag
                  where tag like 'celery:%%' or tag = 'queue:' || r.queue order by tag) as required_tags
      from jsonb_to_recordset(%(tasks)s::jsonb) as r(
               attempt uuid, id text, state text, name text, queue text, eta text, retries int, root text, parent text,
               args text, result text, error jsonb, reason text, held_seconds float8, running_seconds float8)
      join liveness_server s on s.id = %(server)s and s.token_version = %(version)s and not {{liveness.has_ended(s)}}
      left join lateral (
           select j.id from jobs_workerjob j
            where j.owner_id = s.token_id and j.key = r.id and j.kind = 'CELERY' offset 0) job on true
      left join lateral (
           select a.job_id, a.server_id, a.state from jobs_attempt a where a.id = r.attempt offset 0) known on true
)

-- rule: is_job_of(t, j)
-- true if job j stands for the reported task t
(j.id = any(array[t.job_id]))

-- rule: is_new_delivery(t)
-- true if t reports an unknown delivery of its task. For a quarantined task, only the worker that ran it may report one
(t.known_job_id is null and t.state <> 'SENT' and (t.state <> 'QUARANTINED' or t.running_seconds is not null))

-- rule: is_taken(t)
-- true if t reports a message that its worker holds, and the worker is alive
(t.may_hold and t.state in ('HELD', 'RUNNING'))

-- rule: has_ended_as_newer(t, j, a)
-- true if t reports the end of a delivery that began after attempt a of job j. So attempt a is over, although its end
-- was not reported
(t.state in ('COMPLETED', 'FAILED', 'RETRIED', 'QUARANTINED') and t.retries >= (j.action ->> 'retries')::int
 and clock_timestamp() - make_interval(secs => t.held_seconds) > a.claimed_at)

-- rule: is_earlier_try(t, j)
-- true if t reports a try before the last one of job j, which has ended. A task that is sent again begins after that end
(t.retries < (j.action ->> 'retries')::int and clock_timestamp() - make_interval(secs => t.held_seconds) <= j.finished_at)

-- rule: comes_before_the_loss(t, j)
-- true if t reports that job j is in quarantine, but the worker that ran j still counts as alive. The report is not about
-- a run that began later
(exists (select from jobs_attempt a join liveness_server s on s.id = a.server_id
          where a.id = any(array[j.attempt_id]) and {{is_live(a)}} and s.state in {{ALIVE}}
            and a.claimed_at <= clock_timestamp() - make_interval(secs => t.held_seconds)))

-- rule: cannot_be_received(j)
-- true if j is a Celery task that no worker receives now: its queue is on hold, or no live worker reads it
(j.kind = 'CELERY' and (
    exists (select from jobs_hold h where h.kind = 'queue' and {{is_in_force(h)}} and {{covers_set(h, j)}})
    or not exists (select from liveness_server s where s.state in {{ALIVE}} and {{is_suited(s, j)}})))

-- rule: was_revoked(j)
-- true if job j was cancelled so recently that Celery itself still remembers the revocation. Then the task must not run
(j.state = 'CANCELLED' and j.finished_at > clock_timestamp() - interval '3 hours')

-- rule: action_of(t)
-- the action that the job of a task shows
jsonb_strip_nulls(jsonb_build_object(
    'type', 'celery', 'task', t.name, 'task_id', t.id, 'queue', t.queue, 'eta', t.eta, 'retries', t.retries,
    'root', t.root, 'parent', t.parent))

-- statement: lock_reported_tasks
-- Lock the jobs of the reported tasks and attempts. The first statement of each call, after `read_reporting_server`.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
select j.id
  from jobs_workerjob j
 where j.id = any(array(select job_id from reported_tasks union select known_job_id from reported_tasks))
 order by j.id
   for no key update

-- statement: set_ended_tasks_aside
-- Give up the key of an ended job whose task was delivered or quarantined again. The ended job stays as it is, and
-- `add_tasks` makes a new job with the key. Called under `lock_reported_tasks`.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
update jobs_workerjob j
   set key = t.id || ' before ' || t.attempt, send_requested_at = null,
       dismissed_at = case when j.error ->> 'code' = 'RESUBMISSIONS_EXHAUSTED'
                           then coalesce(j.dismissed_at, clock_timestamp()) else j.dismissed_at end
  from reported_tasks t
 where {{is_job_of(t, j)}} and j.state in {{TERMINAL}} and t.may_hold
   and case t.state
           when 'QUARANTINED' then t.known_job_id is null
               and (j.error ->> 'code' is distinct from 'RESUBMISSIONS_EXHAUSTED' or j.dismissed_at is not null)
           else {{is_new_delivery(t)}} and not {{was_revoked(j)}} and not {{is_earlier_try(t, j)}}
               and t.state in ('HELD', 'RUNNING', 'COMPLETED', 'FAILED', 'RETRIED')
       end
returning j.id

-- statement: add_tasks
-- Add a job for each task that has none. A job that stays PENDING for as long as jobs are kept is EXPIRED.
-- takes: tasks jsonb, server uuid, version int, kept float8
-- returns: id uuid
with {{reported_tasks}}
insert into jobs_workerjob (
    owner_id, namespace, key, kind, fingerprint, resubmission_of_id, action, payload, required_tags, unmatched, created_at, good_until)
select t.owner_id, t.namespace, t.id, 'CELERY', ''::bytea, before.id, {{action_of(t)}}, to_jsonb(t.args), t.required_tags, 'wait',
       clock_timestamp() - make_interval(secs => t.held_seconds), clock_timestamp() + make_interval(secs => %(kept)s)
  from reported_tasks t
  left join lateral (
       select before.id from jobs_workerjob before
        where before.owner_id = t.owner_id and before.key = t.id || ' before ' || t.attempt offset 0) before on true
 where t.state = 'QUARANTINED'
    or {{is_new_delivery(t)}} and ({{is_taken(t)}} or t.state not in ('HELD', 'RUNNING'))
 order by t.id
    on conflict (owner_id, key) where key is not null do nothing
returning id

-- statement: move_redelivered_tasks
-- End the earlier attempt of a task that the broker delivered again: as RETRIED if this is the next try of the task,
-- otherwise as lost. A short task may have ended before its worker reports it, and before the loss is reported. Called
-- under `lock_reported_tasks`.
-- takes: tasks jsonb, server uuid, version int, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid,
--   kind text, is_limited bool
with {{reported_tasks}},
held as materialized (
    select j.id as job_id, a.id, j.state as was, moved.event, null::jsonb as output,
           jsonb_build_object('code', moved.code, 'message', moved.message) as error, moved.message as reason,
           'server' as actor, a.server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from reported_tasks t
      join jobs_workerjob j on {{is_job_of(t, j)}}
     cross join lateral (select a.id, a.server_id, a.claimed_at from jobs_attempt a where a.id = j.attempt_id offset 0) a
     cross join lateral (
           select 'RETRIED' as event, 'RETRIED' as code, 'retried' as message
            where t.retries > (j.action ->> 'retries')::int
            union all
           select 'LOST', 'WORKER_CRASHED', format('the broker gave it to %%s', t.server_name)
            limit 1) moved
     where ({{is_taken(t)}} or {{has_ended_as_newer(t, j, a)}}) and {{is_new_delivery(t)}}
),
{{end_attempts}}
{{list_ended_attempts}}

-- statement: begin_tasks
-- Claim waiting tasks for the worker that holds them. Called under `lock_reported_tasks`.
-- takes: tasks jsonb, server uuid, version int, kept float8
-- returns: id uuid
with {{reported_tasks}},
begun_jobs as (
    update jobs_workerjob j
       set state = 'CLAIMED', attempt_id = t.attempt, attempt_count = j.attempt_count + 1, action = {{action_of(t)}},
           required_tags = t.required_tags, good_until = clock_timestamp() + make_interval(secs => %(kept)s)
      from reported_tasks t
     where {{is_job_of(t, j)}} and j.state = 'PENDING' and {{is_new_delivery(t)}}
       and ({{is_taken(t)}} or t.state not in ('HELD', 'RUNNING'))
 returning j.id as job_id, t.attempt, j.attempt_count, t.held_seconds
)
insert into jobs_attempt (id, job_id, number, server_id, claimed_at)
select attempt, job_id, attempt_count, %(server)s, greatest(
           clock_timestamp() - make_interval(secs => held_seconds),
           (select max(before.finished_at) from jobs_attempt before where before.job_id = begun_jobs.job_id))
  from begun_jobs
returning id

-- statement: start_tasks
-- Set tasks to RUNNING whose code has begun; it may have ended since. Called under `lock_reported_tasks`.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}},
started_jobs as (
    update jobs_workerjob j
       set state = 'RUNNING'
      from reported_tasks t
     where j.id = any(array[t.known_job_id]) and t.known_server_id = %(server)s and j.attempt_id = t.attempt
       and j.kind = 'CELERY' and j.state = 'CLAIMED'
       and (t.running_seconds is not null or t.state in ('RUNNING', 'COMPLETED', 'RETRIED'))
 returning t.attempt, coalesce(t.running_seconds, 0) as running_seconds
)
update jobs_attempt a
   set state = 'RUNNING', started_observed = observed_now(),
       started_at = greatest(a.claimed_at, clock_timestamp() - make_interval(secs => started_jobs.running_seconds))
  from started_jobs
 where a.id = any(array[started_jobs.attempt])
returning a.id

-- statement: keep_tasks_alive
-- Record a sign of life of the tasks that a worker holds or runs.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
update jobs_attempt a
   set heartbeat_at = clock_timestamp(), alive_observed = {{liveness.heard_now(s)}}
  from reported_tasks t, (select heard_observed from liveness_server where id = %(server)s) s
 where a.id = any(array[t.attempt]) and a.server_id = %(server)s and {{is_live(a)}} and t.state in ('HELD', 'RUNNING')
returning a.id

-- statement: end_tasks
-- End attempts that their worker reports as ended. For a quarantined task any worker may report the end of an attempt
-- whose own server is lost. Called under `lock_reported_tasks`.
-- takes: tasks jsonb, server uuid, version int, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid,
--   kind text, is_limited bool
with {{reported_tasks}},
held as materialized (
    select j.id as job_id, a.id, j.state as was,
           case t.state when 'RETURNED' then 'RELEASED' when 'REVOKED' then 'CANCELLED' when 'QUARANTINED' then 'ENDED'
                        else t.state end as event,
           to_jsonb(t.result) as output,
           case t.state when 'QUARANTINED' then {{quarantine_error(t)}} else t.error end as error,
           coalesce(t.reason, t.error ->> 'code', '') as reason, 'server' as actor, a.server_id,
           j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries, j.available_at
      from reported_tasks t
     cross join lateral (
           select t.attempt as id, t.known_job_id as job_id, t.known_server_id as server_id
            where t.known_server_id = %(server)s
            union
           select lost.id, lost.job_id, lost.server_id
             from (select held.attempt_id from jobs_workerjob held where held.id = t.job_id offset 0) held
            cross join lateral (select a.* from jobs_attempt a where a.id = held.attempt_id offset 0) lost
             join liveness_server s on s.id = lost.server_id and s.state not in {{ALIVE}}
            where t.state = 'QUARANTINED'
           ) a
     cross join lateral (select * from jobs_workerjob j where j.id = a.job_id offset 0) j
     where j.attempt_id = a.id and j.kind = 'CELERY' and t.state not in ('HELD', 'RUNNING', 'SENT')
),
{{end_attempts}}
{{list_ended_attempts}}

-- rule: quarantine_error(t)
-- the error of a job whose task is in quarantine
jsonb_build_object('code', 'RESUBMISSIONS_EXHAUSTED', 'message', coalesce(t.reason, t.error ->> 'message', 'lost too often'))

-- statement: quarantine_waiting_tasks
-- Set waiting jobs to FAILED whose tasks went into quarantine after their worker was lost.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}},
quarantined_jobs as (
    update jobs_workerjob j
       set state = 'FAILED', error = {{quarantine_error(t)}}, finished_at = clock_timestamp()
      from reported_tasks t
     where {{is_job_of(t, j)}} and t.state = 'QUARANTINED' and j.state = 'PENDING'
 returning j.id
),
counted as (
    insert into liveness_tally (name, number) select 'quarantined', count(*) from quarantined_jobs having count(*) > 0
)
select id from quarantined_jobs

-- statement: confirm_sent_tasks
-- Dismiss jobs whose tasks were sent out of the quarantine.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
update jobs_workerjob j
   set send_requested_at = null, dismissed_at = coalesce(j.dismissed_at, clock_timestamp())
  from reported_tasks t
 where {{is_job_of(t, j)}} and t.state = 'SENT' and j.state = 'FAILED'
returning j.id

-- statement: count_tasks
-- Store the numbers of ended tasks by name and outcome, as a worker counts them. Its sums only grow, so a repeated
-- report changes nothing. At most `names_kept` names of a worker are stored.
-- takes: tally jsonb, counter uuid, server uuid, version int, names_kept bigint
-- returns: name text
with sums as (
    select r.*, row_number() over (order by r.name) + (
               select count(*) from jobs_tasktally known where known.server_id = s.id) as place,
           exists (select from jobs_tasktally known
                    where known.server_id = s.id and known.counter = %(counter)s and known.name = r.name) as is_known
      from jsonb_to_recordset(%(tally)s::jsonb) as r(
               name text, completed bigint, failed bigint, retried bigint, lost bigint, seconds float8)
      join liveness_server s on s.id = %(server)s and s.token_version = %(version)s and not {{liveness.has_ended(s)}}
)
insert into jobs_tasktally as kept (server_id, counter, name, completed, failed, retried, lost, seconds)
select %(server)s, %(counter)s, name, completed, failed, retried, lost, seconds
  from sums where is_known or place <= %(names_kept)s
 order by name
    on conflict (server_id, counter, name) do update
   set completed = greatest(kept.completed, excluded.completed), failed = greatest(kept.failed, excluded.failed),
       retried = greatest(kept.retried, excluded.retried), lost = greatest(kept.lost, excluded.lost),
       seconds = greatest(kept.seconds, excluded.seconds)
returning name

-- statement: judge_reported_tasks
-- Return which of the attempts must be cancelled, which reports are superseded, and which must be sent again. Superseded
-- ends are stored, once. A task may go into quarantine before the loss of its worker is known: the report comes too early.
-- takes: tasks jsonb, server uuid, version int
-- returns: attempt uuid, verdict text
with {{reported_tasks}},
judged as (
    select t.*,
           case
               when t.state = 'QUARANTINED' then case when t.known_job_id is null and {{comes_before_the_loss(t, j)}} then 'again' end
               when t.known_job_id is null and {{was_revoked(j)}} then 'cancel'
               when t.known_server_id is distinct from %(server)s then 'late'
               when t.known_state in {{LIVE}} then case when t.state not in ('HELD', 'RUNNING') then 'late' end
               when t.state in ('HELD', 'RUNNING') then 'late'
               when t.known_state <> case t.state when 'RETRIED' then 'FAILED' else t.state end
                    and t.state in ('COMPLETED', 'FAILED', 'RETRIED') then 'late'
           end as verdict
      from reported_tasks t
      left join lateral (select * from jobs_workerjob j where j.id = t.job_id offset 0) j on true
     where t.state <> 'SENT'
),
superseded_reports as (
    insert into jobs_latereport (job_id, attempt_id, event, reason, body)
    select known_job_id, attempt, state, 'attempt_superseded', jsonb_strip_nulls(jsonb_build_object('output', result, 'error', error))
      from judged
     where verdict = 'late' and known_server_id = %(server)s and state in ('COMPLETED', 'FAILED')
       and not exists (select from jobs_latereport l where l.attempt_id = judged.attempt and l.event = judged.state)
)
select attempt, verdict from judged where verdict is not null

-- statement: read_reporting_server
-- Return the state of the reporting server, so that the caller can refuse the report.
-- takes: server uuid
-- returns: has_ended bool, token_version int
select {{liveness.has_ended(s)}} as has_ended, s.token_version from liveness_server s where s.id = %(server)s
