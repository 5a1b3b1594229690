-- step: attempt_to_interrupt -> held
-- The live attempt of a job that an operator or its client ends, if that is allowed. Used after `lock_job`.
held as materialized (
    select j.id as job_id, a.id, j.state as was, %(event)s::text as event, null::jsonb as output,
           %(error)s::jsonb as error, %(reason)s::text as reason, %(actor)s::text as actor, a.server_id,
           j.cancel_requested_at, j.on_worker_lost, j.resubmissions, j.retries, j.available_at
      from jobs_workerjob j join jobs_attempt a on a.id = j.attempt_id
     where j.id = %(job)s and {{visible_to_caller(j)}} and {{consequences_are_handled(j)}} and j.state in {{LIVE}}
       and (j.cancel_requested_at is null or %(event)s = 'ENDED')
       -- Only its worker ends a Celery task, and only its broker moves it to another worker.
       and j.kind <> 'CELERY'
       and not {{already_moved_by_this_call(j)}}
)

-- step: new_action_event(acted_on) -> new_action_event
-- Record an event for what a person or a client did to the jobs of `acted_on`, with the actor and the note.
new_action_event as (
    insert into liveness_serverevent (action, actor, reason, subject_type, subject_id)
    select %(action)s, %(actor)s, %(note)s, 'job', acted_on.id::text from acted_on
)

-- statement: lock_root_of_job
-- Lock the root of the tree that a job is a step in. Called before `lock_job`, only for actions with consequences.
-- takes: job uuid, owner uuid
-- returns: id uuid
select r.id
  from jobs_execution r
 where r.id in (select e.root_id from jobs_workerjob j join jobs_execution e on e.id = j.execution_id
                 where j.id = %(job)s and {{visible_to_caller(j)}})
   for no key update

-- statement: lock_job
-- Lock a job before a statement acts on it, in the same round trip. The next statement has a new snapshot, so it sees
-- an attempt that was claimed just now. The caller uses the returned state to explain why an action does not apply.
-- takes: job uuid, owner uuid
-- returns: job uuid, state text, is_cancelling bool, execution uuid|null, is_step bool, kind text, is_held bool,
--   is_execution bool, is_waiting bool, is_quarantined bool, is_resubmitted bool, is_limited bool, child uuid|null
-- row: LockedJob
select j.id as job, j.state, j.cancel_requested_at is not null as is_cancelling, j.execution_id as execution,
       j.execution_id is not null as is_step, j.kind, j.attempt_id is not null as is_held,
       {{runs_child(j)}} as is_execution,
       {{is_waiting(j)}} as is_waiting, coalesce({{is_quarantined(j)}}, false) as is_quarantined,
       {{is_resubmitted(j)}} as is_resubmitted, j.limits is not null as is_limited,
       (select c.id from jobs_execution c where c.parent_step_id = j.id) as child
  from jobs_workerjob j
 where j.id = %(job)s and {{visible_to_caller(j)}}
   for no key update

-- statement: cancel_job
-- Cancel a job once, and record who did it. Called after `lock_job`.
-- takes: job uuid, owner uuid, with_consequences bool, action text, actor text, note text
-- returns: id uuid
with acted_on as (
    update jobs_workerjob j
       set {{cancellation_of(j)}}
     where j.id = %(job)s and {{visible_to_caller(j)}} and {{consequences_are_handled(j)}}
       and (j.state = 'PENDING' or j.attempt_id is not null or {{is_waiting(j)}}) and j.cancel_requested_at is null
 returning j.id
),
{{new_action_event}}
select id from acted_on

-- statement: drop_checkpoint
-- Delete the checkpoint of a live job unless it is kept. Called after `lock_job` and before `move_job`.
-- takes: keep_checkpoint bool, event text, error jsonb, reason text, actor text, job uuid, owner uuid,
--   with_consequences bool, key text
-- returns: id uuid
-- counted:
with {{attempt_to_interrupt}},
dropped as (
    update jobs_workerjob j
       set checkpoint = null, checkpoint_at = null
     where j.id = %(job)s and not %(keep_checkpoint)s and exists (select from held)
 returning j.id
)
-- counted: , byte_changes as (
-- counted:     select j.owner_id as owner, -octet_length(j.checkpoint::text) as bytes
-- counted:       from dropped join jobs_workerjob j using (id) where j.checkpoint is not null
-- counted: ),
-- counted: {{counted_bytes}}
select id from dropped

-- statement: move_job
-- Take a live job from its worker, so that it waits again. Called after `lock_job`.
-- takes: event text, error jsonb, reason text, actor text, job uuid, owner uuid, with_consequences bool, key text,
--   max_resubmissions int, action text, note text
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid|null,
--   kind text, is_limited bool
-- row: EndedAttempt
with {{attempt_to_interrupt}},
{{end_attempts}},
acted_on as (select job_id as id from ended_attempts),
{{new_action_event}}
{{list_ended_attempts}}

-- statement: fail_job
-- Set a job that waits or runs to FAILED, without a retry. Called after `lock_job`.
-- takes: error jsonb, job uuid, owner uuid, with_consequences bool, event text, reason text, actor text, key text,
--   max_resubmissions int, action text, note text
-- returns: attempt uuid, job uuid, server uuid, attempt_state text, job_state text, reason text, execution uuid|null,
--   kind text, is_limited bool
-- row: EndedAttempt
with waiting as (
    update jobs_workerjob j
       set state = 'FAILED', error = %(error)s::jsonb, finished_at = clock_timestamp()
     where j.id = %(job)s and {{visible_to_caller(j)}} and {{consequences_are_handled(j)}} and (j.state = 'PENDING' or {{is_waiting(j)}})
       and j.kind <> 'CELERY'
 returning j.id
),
{{attempt_to_interrupt}},
{{end_attempts}},
acted_on as (select id from waiting union all select job_id from ended_attempts),
{{new_action_event}}
{{list_ended_attempts}}

-- statement: ask_to_send_task
-- Request that a worker sends a Celery task out of its broker's quarantine. Heartbeat responses repeat the request
-- until a worker has done it. Called after `lock_job`.
-- takes: job uuid, owner uuid, action text, actor text, note text
-- returns: id uuid
with task_to_send as (
    select j.id from jobs_workerjob j
     where j.id = %(job)s and {{visible_to_caller(j)}} and j.kind = 'CELERY' and {{is_quarantined(j)}}
),
acted_on as (
    update jobs_workerjob j
       set send_requested_at = clock_timestamp()
     where j.id = any(array(select id from task_to_send)) and j.send_requested_at is null
 returning j.id
),
{{new_action_event}}
select id from task_to_send

-- statement: resubmit_ended_job
-- Submit a job that ended without success again, as a new job of the same owner with `key` (null: without one). Called
-- after `lock_job`. Return no row if the key is known, if the owner has no room, or if the job was submitted again
-- before (unless `is_forced`). A deadline that has passed is not copied. If code of the old job may still run, the new
-- job waits until it has stopped. If an operator acts, the old job leaves the quarantine.
-- takes: keep_checkpoint bool, key text, job uuid, owner uuid, is_forced bool, actor text, action text, note text
-- returns: id uuid, is_execution bool
-- counted: stored_limit bigint
with new_job as (
    insert into jobs_workerjob (
        resubmission_of_id, owner_id, namespace, key, kind, fingerprint, name, action, payload, tags, required_tags, priority, timeout_seconds,
        on_worker_lost, unmatched, max_retries, retry_delay_seconds, retry_backoff, retry_on, good_until, available_at,
        traceparent, attempt_traceparent, checkpoint, checkpoint_at, isolation, limits, worker_slots,
        deadline_seconds, deadline_at, on_deadline, notify)
    select j.id, j.owner_id, j.namespace, %(key)s::text, j.kind, j.fingerprint, j.name, j.action, j.payload, j.tags, j.required_tags, j.priority,
           j.timeout_seconds, j.on_worker_lost, j.unmatched, j.max_retries, j.retry_delay_seconds, j.retry_backoff,
           j.retry_on, case when j.good_until > clock_timestamp() then j.good_until end,
           greatest(j.available_at, clock_timestamp()), j.traceparent, j.attempt_traceparent,
           case when %(keep_checkpoint)s then j.checkpoint end, case when %(keep_checkpoint)s then j.checkpoint_at end,
           j.isolation, j.limits, j.worker_slots,
           j.deadline_seconds, clock_timestamp() + make_interval(secs => j.deadline_seconds), j.on_deadline, j.notify
      from jobs_workerjob j
-- counted:      cross join (select %(owner)s::uuid as owner) submitter
     where j.id = %(job)s and {{visible_to_caller(j)}} and j.state in {{TERMINAL}} and j.state <> 'COMPLETED'
       and j.execution_id is null and j.kind = 'TASK' and not {{already_moved_by_this_call(j)}}
       and (%(is_forced)s or not {{is_resubmitted(j)}})
-- counted:        and (%(stored_limit)s::bigint is null or {{stored_of_owner(submitter)}} + {{bytes_of_job(j)}} <= %(stored_limit)s)
        on conflict (owner_id, key) where key is not null do nothing
    returning id, owner_id, action, payload, output, checkpoint, definition, notify
),
-- counted: byte_changes as (
-- counted:     select owner_id as owner, {{bytes_of_job(new_job)}} as bytes from new_job
-- counted: ),
-- counted: {{counted_bytes}},
inherited_taken_attempts as (
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun, told_observed)
    select t.attempt_id, new_job.id, t.server_id, t.had_begun, t.told_observed
      from new_job join jobs_takenattempt t on t.job_id = %(job)s
),
dismissed_job as (
    update jobs_workerjob j
       set dismissed_at = clock_timestamp()
      from new_job
     where j.id = %(job)s and %(actor)s like 'operator:%%' and {{is_quarantined(j)}}
),
acted_on as (select %(job)s::uuid as id from new_job),
{{new_action_event}}
select id, action ->> 'type' = 'execution' as is_execution from new_job
