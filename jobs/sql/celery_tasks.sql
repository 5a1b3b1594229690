-- step: reported_tasks -> reported_tasks
-- What a Celery worker says of its tasks, each task once, with the job of the task and the attempt, where they are known.
-- Its token is that of the tasks: `may_hold` is whether it is alive to take one. (Each looked up by its key, whatever the
-- statistics say)
reported_tasks as materialized (
    select r.*, job.id as job_id, known.job_id as known_job_id, known.server_id as known_server_id,
           known.state as known_state, s.token_id as owner_id, s.namespace, s.name as server_name, s.state in {{ALIVE}} or s.state = 'TERMINATING' as may_hold,
           array(select tag from unnest(s.tags) tag
                  where tag like 'celery:%%' or tag = 'queue:' || r.queue order by tag) as required_tags
      from jsonb_to_recordset(%(tasks)s::jsonb) as r(
               attempt uuid, id text, state text, name text, queue text, eta text, retries int, root text, parent text,
               args text, result text, error jsonb, reason text, held_seconds float8, running_seconds float8)
      join liveness_server s on s.id = %(server)s and s.token_version = %(version)s and s.state not in {{RETIRED}}
      left join lateral (
           select j.id from jobs_workerjob j
            where j.owner_id = s.token_id and j.key = r.id and j.kind = 'CELERY' offset 0) job on true
      left join lateral (
           select a.job_id, a.server_id, a.state from jobs_attempt a where a.id = r.attempt offset 0) known on true
)

-- rule: is_job_of(t, j)
-- job j stands for the task that t speaks of
(j.id = any(array[t.job_id]))

-- rule: is_new_delivery(t)
-- t speaks of a delivery of its task that was not heard of before; of what is in quarantine only who ran it does so
(t.known_job_id is null and t.state <> 'SENT' and (t.state <> 'QUARANTINED' or t.running_seconds is not null))

-- rule: is_taken(t)
-- t speaks of a message that its worker has, and is alive to have
(t.may_hold and t.state in ('HELD', 'RUNNING'))

-- rule: was_revoked(j)
-- job j was cancelled, and no longer ago than Celery itself remembers that: the task is not to run
(j.state = 'CANCELLED' and j.finished_at > clock_timestamp() - interval '3 hours')

-- rule: action_of(t)
-- what the job of a task shows of it
jsonb_strip_nulls(jsonb_build_object(
    'type', 'celery', 'task', t.name, 'task_id', t.id, 'queue', t.queue, 'eta', t.eta, 'retries', t.retries,
    'root', t.root, 'parent', t.parent))

-- statement: lock_reported_tasks
-- Hold the jobs of the tasks and of the attempts that are reported on.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
select j.id
  from jobs_workerjob j
 where j.id = any(array(select job_id from reported_tasks union select known_job_id from reported_tasks))
 order by j.id
   for no key update

-- statement: set_ended_tasks_aside
-- A task that had ended is delivered anew, or in quarantine anew: an ended job stays as it is, and leaves its key to
-- another.
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
           else {{is_new_delivery(t)}} and not {{was_revoked(j)}}
               and t.state in ('HELD', 'RUNNING', 'COMPLETED', 'FAILED', 'RETRIED')
       end
returning j.id

-- statement: add_tasks
-- A job for each task that has none. One of which nothing is heard for as long as jobs are kept is EXPIRED.
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
-- The broker gave a task out again: what held it before does so no more. It was lost there, unless this is its next try.
-- takes: tasks jsonb, server uuid, version int, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid,
--   kind text
with {{reported_tasks}},
held as materialized (
    select j.id as job_id, a.id, j.state as was, moved.event, null::jsonb as output,
           jsonb_build_object('code', moved.code, 'message', moved.message) as error, moved.message as reason,
           'server' as actor, a.server_id, j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries,
           j.available_at
      from reported_tasks t
      join jobs_workerjob j on {{is_job_of(t, j)}}
     cross join lateral (select a.id, a.server_id from jobs_attempt a where a.id = j.attempt_id offset 0) a
     cross join lateral (
           select 'RETRIED' as event, 'RETRIED' as code, 'retried' as message
            where t.retries > (j.action ->> 'retries')::int
            union all
           select 'LOST', 'WORKER_CRASHED', format('the broker gave it to %%s', t.server_name)
            limit 1) moved
     where {{is_taken(t)}} and {{is_new_delivery(t)}}
),
{{end_attempts}}
{{list_verdicts}}

-- statement: begin_tasks
-- Waiting tasks are held by this worker.
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
-- The code of these tasks has begun, and may have ended since.
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
-- A worker that says that it holds them is a sign of life of its tasks.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
update jobs_attempt a
   set heartbeat_at = clock_timestamp(), alive_observed = {{liveness.heard_now(s)}}
  from reported_tasks t, (select heard_observed from liveness_server where id = %(server)s) s
 where a.id = any(array[t.attempt]) and a.server_id = %(server)s and {{is_live(a)}} and t.state in ('HELD', 'RUNNING')
returning a.id

-- statement: end_tasks
-- Attempts end because their worker says so. A quarantined task is what any worker says of one that a lost one had.
-- takes: tasks jsonb, server uuid, version int, max_resubmissions int
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid,
--   kind text
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
{{list_verdicts}}

-- rule: quarantine_error(t)
-- the error of a job whose task is in quarantine
jsonb_build_object('code', 'RESUBMISSIONS_EXHAUSTED', 'message', coalesce(t.reason, t.error ->> 'message', 'lost too often'))

-- statement: quarantine_waiting_tasks
-- Tasks that waited, for their worker is lost, are in quarantine instead.
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
-- Tasks have left the quarantine: somebody has seen to them.
-- takes: tasks jsonb, server uuid, version int
-- returns: id uuid
with {{reported_tasks}}
update jobs_workerjob j
   set send_requested_at = null, dismissed_at = coalesce(j.dismissed_at, clock_timestamp())
  from reported_tasks t
 where {{is_job_of(t, j)}} and t.state = 'SENT' and j.state = 'FAILED'
returning j.id

-- statement: count_tasks
-- How tasks ended, by name, as a worker counts them: its sums only grow, so the same again changes nothing. Of one worker
-- so many names are kept.
-- takes: tally jsonb, counter uuid, server uuid, version int, names_kept bigint
-- returns: name text
with sums as (
    select r.*, row_number() over (order by r.name) + (
               select count(*) from jobs_tasktally known where known.server_id = s.id) as place,
           exists (select from jobs_tasktally known
                    where known.server_id = s.id and known.counter = %(counter)s and known.name = r.name) as is_known
      from jsonb_to_recordset(%(tally)s::jsonb) as r(
               name text, completed bigint, failed bigint, retried bigint, lost bigint, seconds float8)
      join liveness_server s on s.id = %(server)s and s.token_version = %(version)s and s.state not in {{RETIRED}}
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
-- Which of these attempts are to be revoked, and of which a word came too late; an end that did is kept, once.
-- takes: tasks jsonb, server uuid, version int
-- returns: attempt uuid, verdict text
with {{reported_tasks}},
judged as (
    select t.*,
           case
               when t.known_job_id is null and {{was_revoked(j)}} then 'cancel'
               when t.known_server_id is distinct from %(server)s then 'late'
               when t.known_state in {{LIVE}} then case when t.state not in ('HELD', 'RUNNING') then 'late' end
               when t.state in ('HELD', 'RUNNING') then 'late'
               when t.known_state <> case t.state when 'RETRIED' then 'FAILED' else t.state end
                    and t.state in ('COMPLETED', 'FAILED', 'RETRIED') then 'late'
           end as verdict
      from reported_tasks t
      left join lateral (select * from jobs_workerjob j where j.id = t.job_id offset 0) j on true
     where t.state not in ('QUARANTINED', 'SENT')
),
late_reports as (
    insert into jobs_latereport (job_id, attempt_id, event, reason, body)
    select known_job_id, attempt, state, 'attempt_superseded', jsonb_strip_nulls(jsonb_build_object('output', result, 'error', error))
      from judged
     where verdict = 'late' and known_server_id = %(server)s and state in ('COMPLETED', 'FAILED')
       and not exists (select from jobs_latereport l where l.attempt_id = judged.attempt and l.event = judged.state)
)
select attempt, verdict from judged where verdict is not null

-- statement: read_reporting_server
-- Whether the server that reports may speak of tasks.
-- takes: server uuid
-- returns: state text, token_version int
select s.state, s.token_version from liveness_server s where s.id = %(server)s
