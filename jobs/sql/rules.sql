-- rule: cancellation_of(j)
-- what a cancellation does to job j: a waiting one ends at once; of a live one it is asked, and its worker hears it
       state = case j.state when 'PENDING' then 'CANCELLED' else j.state end,
       finished_at = case j.state when 'PENDING' then clock_timestamp() end,
       cancel_requested_at = case when j.state in {{LIVE}} then clock_timestamp() end,
       cancel_requested_observed = case when j.state in {{LIVE}} then observed_now() end

-- rule: consequences_are_handled(j)
-- the end of job j moves nothing on; or the caller sees to what it moves on, in the same transaction
(%(with_consequences)s or j.execution_id is null and j.kind <> 'TRIGGER')

-- rule: holds_nothing_to_recover(s)
-- lost server s holds nothing that is still to be recovered
(s.state in {{TO_RECOVER}}
 and {{liveness.lost_at(s)}} <= clock.reading
 and not exists (
     select from jobs_attempt a
      where a.server_id = s.id and {{is_live(a)}}
        and not (a.state = 'RUNNING' and s.worker_task_restart_strategy = 'NEVER')))

-- rule: halts_with_execution(j)
-- step j waits or is live and is to be cancelled with its execution
((j.state = 'PENDING' or j.state in {{LIVE}} and j.attempt_id is not null)
 and j.cancel_requested_at is null and not j.is_hook)

-- rule: is_live(a)
-- a worker holds attempt a. (As its indexes have it: by the state, a start would change every one of them. Who seeks
-- those that run says this too, or all that ever were are read)
a.finished_at is null

-- rule: held_attempts(s)
-- how many attempts server s holds
(select count(*) from jobs_attempt a where a.server_id = s.id and {{is_live(a)}})

-- rule: waits_for_previous_attempt(j)
-- the last attempt of job j may still run where it was taken from. (A scalar subquery: looked up by index, never joined)
coalesce((select true from jobs_takenattempt t where t.job_id = j.id and t.had_begun limit 1), false)

-- rule: missing_worker
-- what keeps all workers from what was `submitted` (null: nothing): the tags that they are to have, and a filter of
-- `read_placement`
case when submitted.needs is not null then (
select jsonb_build_object('filter', tags_without_worker.filter, 'tags', tags_without_worker.need)
  from jsonb_array_elements(submitted.needs) needs_of_job(need) join tags_without_worker using (need)
 where tags_without_worker.namespace = submitted.namespace limit 1) end

-- rule: is_quarantined(j)
-- job j is in quarantine (not so: false or null): its workers ended because of it, or so it seems, and nobody has looked
-- at it since. (As the index job_in_quarantine has it, or none but a scan of all jobs would find them)
(j.state = 'FAILED' and j.error -> 'code' in {{QUARANTINED_JSON}} and j.dismissed_at is null)

-- rule: is_resubmitted(j)
-- job j has ended, and was submitted again as another
exists (select from jobs_workerjob again where again.resubmission_of_id = j.id)

-- rule: visible_to_caller(j)
-- whether the caller may touch job j: a client (owner) its own, an operator (null) every one
(%(owner)s::uuid is null or j.owner_id = %(owner)s::uuid)

-- rule: is_lost(s)
-- server s is lost by the reading of the clock
coalesce({{liveness.lost_at(s)}} <= clock.reading, false)

-- rule: stopped_by_execution(j)
-- job j is a step of an execution that is being cancelled or has ended: nothing of it begins any more but hooks
(j.execution_id is not null and not j.is_hook and exists (
    select from jobs_execution e where e.id = j.execution_id and e.state <> 'RUNNING'))

-- rule: already_moved_by_this_call(j)
-- the same call has moved job j before: whoever lost its answer makes it again
(%(key)s::text is not null and exists (
    select from jobs_attempt m
     where m.job_id = j.id and m.state in {{INTERRUPTED}} and m.ended_by = %(actor)s and m.error ->> 'key' = %(key)s))

-- rule: outstays_drain(s)
-- server s was heard after the deadline of its drain, so it knew of it, and a timeout later it has not given back what
-- it holds. One that was not heard since may not know: it is lost, and moves, as any that is silent
((s.state in {{ALIVE}} or s.state = 'TERMINATING')
 and s.heard_observed >= s.drain_until_observed + s.timeout
 and s.drain_until_observed + s.timeout <= clock.reading)

-- rule: ends_to_propagate
-- what the ends of these jobs move on: executions, and triggers by the jobs that evaluated them
       array_agg(execution_id) filter (where execution_id is not null) as executions,
       array_agg(job_id) filter (where kind = 'TRIGGER') as evaluations,
       -- and the first of them, for the log
       (array_agg(job_id))[1:100] as listed

-- rule: execution_is_past_retention(e)
-- execution e began a tree that is past its retention: all of it has ended, hooks too
(e.finished_at < %(executions)s and e.root_id = e.id
 and not exists (select from jobs_execution c join jobs_workerjob j on j.execution_id = c.id
                  where c.root_id = e.id and j.state not in {{TERMINAL}}))

-- rule: single_job_is_past_retention(j)
-- job j, which is no step, is past its retention
(j.finished_at < %(jobs)s and j.execution_id is null)

-- rule: job_is_past_retention(j)
-- job j is past its retention: its own, or as a step that of the execution that began its tree
(case when j.execution_id is null then {{single_job_is_past_retention(j)}}
      else (select r.finished_at < %(executions)s from jobs_execution e join jobs_execution r on r.id = e.root_id
             where e.id = j.execution_id) end)

-- rule: server_is_past_retention(s)
-- whether server s is past its retention
(s.state = 'INACTIVE' and s.state_changed_at < %(servers)s)

-- rule: attention_rank(s)
-- servers `s` that need attention first, those that leave next; at the end those that have ended
(case
    when s.state = 'INACTIVE' then 3
    when s.state in {{LOST}} then 0
    when s.state not in {{ALIVE}} then 1
    when s.silent then 0
    else 2
end)

-- rule: root_is_locked(j)
-- job j is no step, or the root of its tree is held from here on, before the job is. Nobody is waited for: what somebody
-- else moves on at this moment is for the next sweep
(j.execution_id is null or exists (
    select from jobs_execution r
     where r.id = (select e.root_id from jobs_execution e where e.id = j.execution_id)
       for no key update skip locked))

-- rule: is_suited(s, j)
-- server s is of the namespace of j, and has all the tags that j requires: a job, or a set of tags of a namespace, in
-- columns of these names
(j.namespace = s.namespace and j.required_tags <@ s.tags)

-- rule: has_refused(s, j)
-- server s gave job j back as not allowed
(s.id = any(j.refused_by))

-- rule: free_capacity(s)
-- how many more attempts server s may hold
(s.max_concurrent - {{held_attempts(s)}})

-- rule: obstacle_to_job(s, j)
-- the first filter that keeps server s, of its namespace, from waiting job j (null: none)
coalesce({{liveness.obstacle_to_work(s)}}, case
    when not {{is_suited(s, j)}} then 'tags'
    when {{has_refused(s, j)}} then 'refused'
    when {{free_capacity(s)}} <= 0 then 'capacity'
end)

-- rule: next_change_at(s)
-- the observed time at which it gets worse with server s next: it is DISCONNECTED, or what it runs moves (infinity: it
-- keeps that; null: nothing is known to come)
(case
    when s.silent then case
        when {{liveness.is_held_by_brake(s)}} and {{liveness.disconnected_at(s)}} <= (select observed_now()) then null
        else {{liveness.disconnected_at(s)}} end
    when s.state <> 'INACTIVE' then {{liveness.running_attempts_move_at(s)}}
end)

-- rule: code_stops_at(s)
-- the observed time by which the code on server s has stopped, if s is not heard any more: by the fence that its last
-- heartbeat was answered, whatever became of it since. Under NEVER there is none: nobody can know more than that it is
-- lost
(case
    when s.worker_task_restart_strategy = 'NEVER' then s.heard_observed + s.timeout
    when s.state = 'TERMINATING' then {{liveness.given_away_at(s)}}
    else {{liveness.given_away_if_silent_at(s)}}
end)

-- rule: may_be_claimed(j)
-- pending job j may be given now to a worker that has its tags and did not refuse it
(j.kind <> 'CELERY'
 and j.available_at <= (select clock_timestamp())
 and (j.good_until is null or j.good_until > (select clock_timestamp()))
 and not {{waits_for_previous_attempt(j)}}
 and not {{stopped_by_execution(j)}})

-- rule: timed_out(e)
-- execution e ends by its own timeout: its hooks run, as they do when it fails
(e.state = 'CANCELLING' and e.error ->> 'code' = 'EXECUTION_TIMEOUT')

-- rule: waits_for_worker(j)
-- unmatched job j waits for a worker however long that takes: it is to, or one that had it is gone, and more may come
-- (a scalar subquery: looked up by index, never hashed from the whole table)
(j.unmatched = 'wait' or %(unmatched_after)s::float8 is null
 or %(wait_after_loss)s and j.attempt_count > 0 and coalesce((
    select true from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.job_id = j.id and a.state in {{INTERRUPTED}} and a.reason <> 'not_allowed' and s.state not in {{ALIVE}}
     limit 1), false))

-- rule: unmatched_since(j)
-- the observed time since which pending job j has had the chance of a worker: it waits since then, or some maintenance
-- ended then, for which workers were sent away
greatest(j.pending_observed, (select maintenance_ended_observed from liveness_instance))

-- rule: job_columns
name, action, payload, tags, required_tags, priority, timeout_seconds, on_worker_lost, unmatched, max_retries,
        retry_delay_seconds, retry_backoff, retry_on, good_until, traceparent

-- rule: job_values
-- the values of `job_columns`, of fields in JSON: what is not there is as drafts.DEFAULTS has it
coalesce(name, ''), action, payload, coalesce(tags, '{}'), required_tags, coalesce(priority, 0), timeout_seconds,
        on_worker_lost, coalesce(unmatched, 'fail'), coalesce(max_retries, 0), coalesce(retry_delay_seconds, 0),
        coalesce(retry_backoff, 'fixed'), retry_on, good_until, traceparent

-- rule: job_columns_in_json
-- the fields of `job_columns` as they come in JSON, some or all
name text, action jsonb, payload jsonb, tags text[], required_tags text[], priority int, timeout_seconds float8,
        on_worker_lost text, unmatched text, max_retries int, retry_delay_seconds float8, retry_backoff text,
        retry_on text[], good_until timestamptz, traceparent text, available_at timestamptz, needs jsonb

-- rule: reported_jobs
-- the jobs whose attempts are reported on
array(select reported.job_id from jobs_attempt reported
       where reported.id = any(%(attempts)s::uuid[]) and reported.server_id = %(server)s)

-- rule: waiting_of_owner
-- How many jobs of an owner wait before this statement, counted no further than matters; 0 where there is no limit.
case when %(waiting_limit)s::int is null then 0 else (
    select count(*) from (
        select from jobs_workerjob j where j.owner_id = %(owner)s and j.state = 'PENDING' limit %(waiting_limit)s::int
    ) waiting) end

-- rule: action_name(j)
-- what job j runs, in a few words: its type, and which of them
left(concat_ws(' ', j.action ->> 'type', coalesce(
    j.action ->> 'path', j.action ->> 'name', j.action ->> 'task', j.action ->> 'image')), 200)

-- rule: duration_bin(d)
-- the bin that the seconds of `d` are counted in, as jobs/history.py says
floor({{BINS_PER_DOUBLING}} * log(2.0, greatest(d.seconds * 1000, 1)::numeric))::int

-- rule: is_of_cluster(e)
-- event e is of a server of the cluster that is asked for (empty: of any)
(%(cluster)s::text = '' or e.server_id in (select of_cluster.id from liveness_server of_cluster where of_cluster.cluster = %(cluster)s))

-- rule: is_sought_line(l)
-- Whether a line of a log is of one stream and holds a text, whatever its case; null: of either, whatever it holds.
(%(stream)s::text is null or l.stream = %(stream)s)
and (%(holds)s::text is null or strpos(lower(l.line), lower(%(holds)s)) > 0)

-- rule: size_of(i)
-- how many or how long incident i was found to be
coalesce(i.details ->> 'count', i.details ->> 'silent', i.details ->> 'seconds', i.details ->> 'per_minute')::float8

-- rule: is_in_namespaces(row)
-- row is of the `namespaces` that are asked about (null: of all)
(%(namespaces)s::text[] is null or row.namespace = any(%(namespaces)s))

-- rule: counted_rows(row)
-- how many of these rows are of the `namespaces`; whether there may be more than were looked at
count(*) filter (where {{is_in_namespaces(row)}}), count(*) = %(counted)s
