-- A job that ended without success, as a new one of the same owner: what was asked for, with a key of its own or none.
-- It is not to expire by a moment that has passed. Nothing when the key is known: the caller finds the job that has it.
-- It waits for what of the first still runs somewhere, as the first itself would.
with copied as (
    insert into jobs_workerjob (
        resubmission_of_id, owner_id, key, kind, fingerprint, action, payload, tags, required_tags, priority, timeout_seconds,
        on_worker_lost, unmatched, max_retries, retry_delay_seconds, retry_backoff, retry_on, good_until, available_at)
    select j.id, j.owner_id, %(key)s::text, j.kind, j.fingerprint, j.action, j.payload, j.tags, j.required_tags, j.priority,
           j.timeout_seconds, j.on_worker_lost, j.unmatched, j.max_retries, j.retry_delay_seconds, j.retry_backoff,
           j.retry_on, case when j.good_until > clock_timestamp() then j.good_until end,
           greatest(j.available_at, clock_timestamp())
      from jobs_workerjob j
     where j.id = %(job)s and {{interrupt_reach}} and j.state in {{TERMINAL}} and j.state <> 'COMPLETED'
       and j.execution_id is null and j.kind = 'TASK' and not {{moved_before}}
        on conflict (owner_id, key) where key is not null do nothing
    returning id, action ->> 'type' = 'execution' as is_execution
),
heirs as (
    insert into jobs_takenattempt (attempt_id, job_id, server_id, had_begun, told_observed)
    select t.attempt_id, copied.id, t.server_id, t.had_begun, t.told_observed
      from copied join jobs_takenattempt t on t.job_id = %(job)s
)
select id, is_execution from copied
