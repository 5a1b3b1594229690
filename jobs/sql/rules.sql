-- rule: start_delay(t)
-- seconds by which each slot of trigger t starts late. `schedules.start_delay` computes the same
(t.jitter_seconds * (('x' || right(t.id::text, 8))::bit(32)::bigint / 4294967296::float8))

-- rule: slot_is_open(s)
-- true if slot s waits, is evaluated or runs, as of the last tick. The condition is that of the index triggerslot_open
(s.outcome in ('QUEUED', 'EVALUATING') or s.is_running)

-- rule: slot_runs(s)
-- true if slot s is evaluated, or its execution has not ended
(s.outcome = 'EVALUATING' or s.is_running and {{execution_runs(s)}})

-- rule: execution_runs(s)
-- true if the execution of slot s has not ended
exists (select from jobs_execution e where e.id = s.execution_id and e.state not in {{EXECUTION_TERMINAL}})

-- rule: starts_at(t, s)
-- true if trigger t starts at signal s
(t.namespace = s.namespace and t.enabled and s.created_at between coalesce(t.enabled_at, t.created_at) and coalesce(t.end_at, 'infinity')
 and s.created_at >= coalesce(t.start_at, '-infinity')
 and (t.on_signal = s.name or right(t.on_signal, 1) = '*' and starts_with(s.name, left(t.on_signal, -1))))

-- rule: is_waiting(j)
-- true if step j waits for something outside of its execution. No worker holds it, so it can end at once
(j.state = 'RUNNING' and j.wait is not null)

-- rule: waits_for_answer(j)
-- true if step j waits for an answer of a person. The condition is that of the index job_waits_for_answer
(j.state = 'RUNNING' and (j.wait -> 'what') = '"answer"'::jsonb)

-- rule: state_after(a)
-- the state of a step after this answer
case a.answer when 'reject' then 'FAILED' else 'COMPLETED' end

-- rule: now_in_json
-- the time now as responses have it
((to_jsonb(clock_timestamp() at time zone 'UTC') #>> '{}') || 'Z')

-- rule: runs_child(j)
-- true if job j is an execution that runs. The condition is that of the index job_with_child
(j.state = 'RUNNING' and j.attempt_id is null and j.wait is null)

-- rule: needs_no_worker(j)
-- true if the control plane starts job j itself: an execution or a step that waits
(j.required_tags = array[''])

-- rule: moment_in_json(w)
-- the time `ends_at` as responses have it (null: none)
((to_jsonb(w.ends_at at time zone 'UTC') #>> '{}') || 'Z')

-- rule: signal_of(j)
-- the id of the first signal that ends the wait of step j (null: none yet). Signals past `signal_kept` do not count
(select s.id from jobs_signal s
  where s.namespace = j.namespace and s.name = j.wait_signal
    and s.created_at >= greatest((j.wait ->> 'since')::timestamptz, clock_timestamp() - make_interval(secs => %(signal_kept)s))
  order by s.created_at, s.id limit 1)

-- rule: cancellation_of(j)
-- columns that cancel job j: a waiting job ends now, the worker of a live job is asked to stop it
       state = case when j.state = 'PENDING' or {{is_waiting(j)}} then 'CANCELLED' else j.state end,
       finished_at = case when j.state = 'PENDING' or {{is_waiting(j)}} then clock_timestamp() end,
       cancel_requested_at = case when j.attempt_id is not null then clock_timestamp() end,
       cancel_requested_observed = case when j.attempt_id is not null then observed_now() end

-- rule: consequences_are_handled(j)
-- true if the end of job j has no consequences, or the caller handles them in the same transaction
(%(with_consequences)s or j.execution_id is null and j.kind <> 'TRIGGER')

-- rule: holds_nothing_to_recover(s)
-- true if lost server s holds no attempt that must be recovered
(s.state in {{TO_RECOVER}}
 and {{liveness.lost_at(s)}} <= clock.reading
 and not exists (
     select from jobs_attempt a
      where a.server_id = s.id and {{is_live(a)}}
        and not (a.state = 'RUNNING' and s.worker_task_restart_strategy = 'NEVER')))

-- rule: halts_with_execution(j)
-- true if step j waits or runs and must be cancelled with its execution
((j.state = 'PENDING' or j.state in {{LIVE}} and j.attempt_id is not null or {{is_waiting(j)}})
 and j.cancel_requested_at is null and not j.is_hook)

-- rule: is_live(a)
-- true if a worker holds attempt a. The condition is that of the partial indexes, so that a start changes no index.
-- A query for running attempts needs this condition too; otherwise it reads all attempts that ever were.
a.finished_at is null

-- rule: held_attempts(s)
-- number of attempts that server s holds
(select count(*) from jobs_attempt a where a.server_id = s.id and {{is_live(a)}})

-- rule: used_slots(s)
-- number of its slots that the attempts of server s use. The index of live attempts has the number of each
(select coalesce(sum(a.worker_slots), 0) from jobs_attempt a where a.server_id = s.id and {{is_live(a)}})

-- rule: is_claimable(j)
-- true if job j waits for a claim. `is true` keeps PostgreSQL from taking the condition apart, so it can use only indexes
-- with the same condition (see IsTrue). Otherwise it could read all pending jobs when its statistics are poor
((j.parked_by is null and j.state = 'PENDING') is true)

-- rule: is_claimable_with_limits(j)
-- true if job j has limits and waits for a claim. Not taken apart, like is_claimable
((j.limits is not null and j.parked_by is null and j.state = 'PENDING') is true)

-- rule: is_claimable_with_slots(j)
-- true if job j needs several slots of a worker and waits for a claim. Not taken apart, like is_claimable
((j.parked_by is null and j.state = 'PENDING' and j.worker_slots > 1) is true)

-- rule: is_pending(j)
-- true if job j waits, parked or not. Not taken apart, like is_claimable
((j.state = 'PENDING') is true)

-- rule: is_parked(j)
-- true if job j is parked. Not taken apart, like is_claimable
((j.parked_by is not null and j.state = 'PENDING') is true)

-- rule: is_parked_by_limit(j)
-- true if job j is parked by a limit. Not taken apart, like is_claimable
((j.parked_by ? 'limit' and j.state = 'PENDING') is true)

-- rule: is_parked_by_hold(j)
-- true if job j is parked by a hold. Not taken apart, like is_claimable
((j.parked_by ? 'hold' and j.state = 'PENDING') is true)

-- rule: execution_is_parked(e)
-- true if execution e waits for its slots. Not taken apart, like is_claimable
((e.parked_by is not null and e.state = 'RUNNING') is true)

-- rule: is_parked_by_loop(j)
-- true if item j of a loop waits until the loop may run another one
coalesce(j.parked_by ? 'max_parallel', false)

-- rule: is_parked_by_execution(j)
-- true if job j is a first step of an execution that waits for its slots
coalesce(j.parked_by ? 'execution_limit', false)

-- rule: may_run_code(e)
-- true if code of execution e, or of one below it, may still run on a server that it was taken from
exists (
    select from jobs_takenattempt t
      join jobs_workerjob j on j.id = t.job_id
      join jobs_execution own on own.id = j.execution_id
     where t.had_begun and own.root_id = e.root_id and e.id in (
           with recursive above (id, parent_step_id) as (
               select own.id, own.parent_step_id
                union all
               select x.id, x.parent_step_id
                 from (select parent_step_id from above limit 1) above
                cross join lateral (select j.execution_id from jobs_workerjob j where j.id = above.parent_step_id offset 0) p
                cross join lateral (select * from jobs_execution x where x.id = p.execution_id offset 0) x)
           select id from above))

-- rule: starts_under_hold(e)
-- true if a hold keeps execution e from its start: a hold of its namespace, of one of its limit keys, of itself or of an
-- execution above it. The column of its id is execution_id
exists (
    select from jobs_hold hold
     where {{is_in_force(hold)}}
       and ({{covers_execution(hold, e)}}
            or (hold.namespace is null or hold.namespace = e.namespace) and case hold.kind
                when 'limit' then jsonb_exists(e.limits, hold.value)
                when 'namespace' then hold.value = e.namespace
                else false end))

-- rule: start_refused_at(e)
-- when the database last refused to start execution e (null: it never has)
(select l.at from liveness_leftout l where l.step = 'executions started' and l.row = e.id::text)

-- rule: first_execution(l, of_key)
-- the first execution that waits for the slots of key of_key which limit l counts, and how many it needs. One that needs
-- more slots than there are never starts, so it does not count. Nor does one that lacks only slots of another limit, or
-- one that the database refused to start
-- Executions wait rarely. The subquery keeps the function out of the plan of each claim, which would cost more
(select waiting.amount
   from (select e.*, e.id as execution_id, (e.limits ->> of_key.key)::int as amount from jobs_execution e) waiting
  cross join lateral limit_room(of_key.key, (select waiting.namespace)) own
  where {{execution_is_parked(waiting)}} and waiting.parked_by ->> 'limit' = of_key.key
    and (l.namespace = 'default' or waiting.namespace = l.namespace)
    and coalesce(waiting.amount <= own.most, true)
    and (waiting.amount > l.running - l.used or coalesce(waiting.amount <= own.slots, true))
    and {{start_refused_at(waiting)}} is null and not {{starts_under_hold(waiting)}}
  order by waiting.namespace, waiting.id limit 1)

-- rule: reserved_slots(k)
-- the slots that the first waiting execution of key k needs, by the namespace of each limit (null: none waits). They are
-- reserved for it. Otherwise jobs that need fewer slots could overtake it again and again
(select jsonb_object_agg(l.namespace, first_execution.amount)
   from limits_of(k.key, k.namespace) l
  cross join lateral {{first_execution(l, k)}} first_execution
  where {{has_parked_executions(k)}})

-- rule: may_be_unparked(j, of_set)
-- true if parked job j of a key and set of required tags may start, if there is room. A job that needs more slots than
-- there are does not stop the others
{{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' = of_set.key and j.namespace = of_set.namespace
and j.required_tags = of_set.required_tags and j.available_at <= (select clock_timestamp())
and coalesce((j.limits ->> of_set.key)::int <= of_set.most, true)

-- rule: other_limit(j)
-- another key of job j, which is parked by `key`, with a rule that limits how many run or start; null if there is none
(select jsonb_build_object('limit', needed.key)
   from jsonb_object_keys(j.limits) needed (key)
  where needed.key <> j.key and exists (
        select from jobs_limitrule r
         where r.pattern = any(limit_patterns(needed.key)) and r.namespace in ('default', j.namespace)
           and (r.running is not null or r.starts is not null))
  limit 1)

-- rule: is_limited(k)
-- true if a rule limits how many jobs of key k run or start
exists (select from jobs_limitrule r
         where r.pattern = any(limit_patterns(k.key)) and (r.running is not null or r.starts is not null))

-- rule: has_parked_jobs(k)
-- true if jobs are parked by key k
coalesce((select true from jobs_workerjob j
           where {{is_parked_by_limit(j)}} and j.parked_by ->> 'limit' = k.key
           order by j.namespace, j.required_tags limit 1), false)

-- rule: has_parked_executions(k)
-- true if executions are parked by key k
coalesce((select true from jobs_execution e
           where {{execution_is_parked(e)}} and e.parked_by ->> 'limit' = k.key
           order by e.namespace limit 1), false)

-- rule: executions_wait
-- true if executions wait for slots
coalesce((select true from jobs_execution e
           where {{execution_is_parked(e)}}
           order by e.parked_by ->> 'limit' limit 1), false)

-- rule: has_room(k)
-- true if new jobs of key k that need `slots` slots need not wait: no job or execution waits for the key, and so many slots
-- are free. It is judged without a lock, so a claim may still park a job. Keys that are fair or limit starts have no room
(not ((select {{keys_take_turns}}) and fair_weight(k.key, k.namespace) is not null)
 and not {{has_parked_jobs(k)}} and not {{has_parked_executions(k)}}
 and exists (
     select from limit_room(k.key, k.namespace) room
      where room.starts is null
        and (room.slots is null or room.slots >= k.slots + (
             select case when count(*) < 100 then coalesce(sum(claimable.amount), 0) end
               from (select (j.limits ->> k.key)::bigint as amount from jobs_workerjob j
                      where {{is_claimable_with_limits(j)}} and j.limits ? k.key
                      limit 100) claimable))))

-- rule: takes_place_in_loop(j)
-- true if item j counts against `max_parallel` of its loop. An ended one does while its code may still run
(not {{is_parked_by_loop(j)}} and not (j.state in {{TERMINAL}} and j.passed_on))

-- rule: outputs_are_known(e)
-- true if the outputs of execution e have been read, or it has none. It ends after that
(e.outputs_from is null or e.outputs_from ? 'read')

-- rule: failed_fast(e)
-- true if loop e is being stopped because an item of it has failed. It ends FAILED
(e.state = 'CANCELLING' and coalesce(e.error ->> 'code' = 'ITEMS_FAILED', false))

-- rule: waits_for_previous_attempt(j)
-- true if the last attempt of job j may still run on the server it was taken from. A scalar subquery uses the index
-- and never becomes a join
coalesce((select true from jobs_takenattempt t where t.job_id = j.id and t.had_begun limit 1), false)

-- rule: is_held_back(j)
-- true if the end of step j has no effect yet, because its code may still run, and a BLOCKED step of its tree or a parked
-- item of its loop waits. Without one the end takes effect at once, and the execution may run again (its steps wait for
-- that code too)
({{waits_for_previous_attempt(j)}} and (exists (
    select from jobs_execution own
      join jobs_execution e on e.root_id = own.root_id
      join jobs_workerjob waiting on waiting.execution_id = e.id and waiting.state = 'BLOCKED'
     where own.id = j.execution_id) or exists (
    select from jobs_workerjob waiting
     where waiting.execution_id = j.execution_id and waiting.state = 'PENDING' and {{is_parked_by_loop(waiting)}})))

-- rule: missing_worker
-- the filter that keeps all workers from a `submitted` job, and the tags that they need (null: a worker may take it).
-- The filters are those of `read_placement`
case when submitted.needs is not null then (
select jsonb_build_object('filter', tags_without_worker.filter, 'tags', tags_without_worker.need)
  from jsonb_array_elements(submitted.needs) needs_of_job(need) join tags_without_worker using (need)
 where tags_without_worker.namespace = submitted.namespace
   and tags_without_worker.slots = coalesce(submitted.worker_slots, 1) limit 1) end

-- rule: is_quarantined(j)
-- true if job j is in quarantine (false or null: it is not): its workers crashed, probably because of it, and nobody
-- has dismissed it. The condition is that of the index job_in_quarantine; with another one all jobs would be read
(j.state = 'FAILED' and j.error -> 'code' in {{QUARANTINED_JSON}} and j.dismissed_at is null)

-- rule: is_resubmitted(j)
-- true if job j was submitted again as another job
exists (select from jobs_workerjob again where again.resubmission_of_id = j.id)

-- rule: visible_to_caller(j)
-- true if the caller may act on job j: a client (owner) on its own jobs, an operator (null) on all
(%(owner)s::uuid is null or j.owner_id = %(owner)s::uuid)

-- rule: is_lost(s)
-- true if server s is lost by the clock of observed time
coalesce({{liveness.lost_at(s)}} <= clock.reading, false)

-- rule: stopped_by_execution(j)
-- true if job j is a step of an execution that is cancelled or has ended: none of its jobs may begin, except hooks
(j.execution_id is not null and not j.is_hook and exists (
    select from jobs_execution e where e.id = j.execution_id and e.state <> 'RUNNING'))

-- rule: already_moved_by_this_call(j)
-- true if an earlier call with the same key moved job j. A client repeats a call if the response was lost
(%(key)s::text is not null and exists (
    select from jobs_attempt m
     where m.job_id = j.id and m.state in {{INTERRUPTED}} and m.ended_by = %(actor)s and m.error ->> 'key' = %(key)s))

-- rule: outstays_drain(s)
-- true if server s sent a heartbeat after its drain deadline (so it knows the deadline) and still holds attempts one
-- timeout later. A server without such a heartbeat may not know the deadline: it is lost when it is silent for too long
((s.state in {{ALIVE}} or s.state = 'TERMINATING')
 and s.heard_observed >= s.drain_until_observed + s.timeout
 and s.drain_until_observed + s.timeout <= clock.reading)

-- rule: ends_to_propagate
-- executions, and jobs of triggers, on which the ends of these jobs have consequences
       array_agg(execution_id) filter (where execution_id is not null) as executions,
       array_agg(job_id) filter (where kind = 'TRIGGER') as evaluations,
       -- the first 100 jobs are written to the log
       (array_agg(job_id))[1:100] as listed

-- rule: execution_is_past_retention(e)
-- true if execution e is the root of a tree that has ended, with all hooks, and is past its retention
(e.finished_at < %(executions)s and e.root_id = e.id
 and not exists (select from jobs_execution c join jobs_workerjob j on j.execution_id = c.id
                  where c.root_id = e.id and j.state not in {{TERMINAL}}))

-- rule: single_job_is_past_retention(j)
-- true if job j is past its retention and is not a step
(j.finished_at < %(jobs)s and j.execution_id is null)

-- rule: job_is_past_retention(j)
-- true if job j is past its retention. For a step, the retention of the root execution counts
(case when j.execution_id is null then {{single_job_is_past_retention(j)}}
      else (select r.finished_at < %(executions)s from jobs_execution e join jobs_execution r on r.id = e.root_id
             where e.id = j.execution_id) end)

-- rule: server_is_past_retention(s)
-- true if server s is past its retention
(s.state = 'INACTIVE' and s.state_changed_at < %(servers)s)

-- rule: attention_rank(s)
-- rank of server s: first servers that need attention, then those that end next, last those that have ended
(case
    when s.state = 'INACTIVE' then 3
    when s.state in {{LOST}} then 0
    when s.state not in {{ALIVE}} then 1
    when s.silent then 0
    else 2
end)

-- rule: root_is_locked(j)
-- true if job j is no step, or this condition could lock the root of its tree. The root is locked before the job. A
-- root that another transaction has locked is skipped and left to the next sweep
(j.execution_id is null or exists (
    select from jobs_execution r
     where r.id = (select e.root_id from jobs_execution e where e.id = j.execution_id)
       for no key update skip locked))

-- rule: is_suited(s, j)
-- true if server s is in the namespace of j and has all its required tags. j is a job, or a set of tags with columns of
-- the same names
(j.namespace = s.namespace and j.required_tags <@ s.tags)

-- rule: next_tag_set(w)
-- the least set of tags after w.required_tags that could be a subset of w.tags (null: none could). If w.required_tags is
-- no subset, the first tag that is not in w.tags is replaced by the next greater tag of w.tags, or the one before it.
(case when w.required_tags <@ w.tags then w.required_tags || ''::text else (
    select w.required_tags[:place - 1] || min(greater.tag)
      from generate_series(1, (select min(lacked.place) from unnest(w.required_tags) with ordinality lacked (tag, place)
                                where lacked.tag <> all(w.tags))) place,
           unnest(w.tags) greater (tag)
     where greater.tag > w.required_tags[place]
     group by place order by place desc limit 1) end)

-- rule: has_refused(s, j)
-- true if server s refused job j as not allowed
(s.id = any(j.refused_by))

-- rule: free_capacity(s)
-- number of slots of server s that no attempt uses
(s.max_concurrent - {{used_slots(s)}})

-- rule: obstacle_to_job(s, j)
-- the first filter that keeps server s from waiting job j of its namespace (null: no filter does)
coalesce({{liveness.obstacle_to_work(s)}}, case
    when not {{is_suited(s, j)}} then 'tags'
    when {{has_refused(s, j)}} then 'refused'
    when j.worker_slots > greatest(s.max_concurrent, 1) then 'slots'
    when {{free_capacity(s)}} < j.worker_slots then 'capacity'
end)

-- rule: wants(j)
-- the tags of unmatched job j, and its slots if no worker has so many
(case when (j.namespace, j.required_tags, j.worker_slots) in (select namespace, required_tags, worker_slots from too_large_sets)
      then j.required_tags || format('%%s slots', j.worker_slots) else j.required_tags end)

-- rule: next_change_at(s)
-- the observed time at which server s is marked DISCONNECTED or its running attempts move. Infinity: they never move;
-- null: no time is known
(case
    when s.silent then case
        when {{liveness.is_held_by_brake(s)}} and {{liveness.disconnected_at(s)}} <= (select observed_now()) then null
        else {{liveness.disconnected_at(s)}} end
    when s.state <> 'INACTIVE' then {{liveness.running_attempts_move_at(s)}}
end)

-- rule: code_stops_at(s)
-- the observed time by which the code on server s has stopped if no heartbeat comes any more. The fence in its last
-- heartbeat response decides this, whatever happened to the server since. Under NEVER there is no fence, so this is only
-- the time at which the server is lost
(case
    when s.ended_at is not null then s.state_changed_observed
    when s.worker_task_restart_strategy = 'NEVER' then s.heard_observed + s.timeout
    when s.state = 'TERMINATING' then {{liveness.given_away_at(s)}}
    else {{liveness.given_away_if_silent_at(s)}}
end)

-- rule: may_be_claimed(j)
-- true if pending job j may be claimed now by a worker that has its tags and did not refuse it
(j.kind <> 'CELERY'
 and j.available_at <= (select clock_timestamp())
 and (j.good_until is null or j.good_until > (select clock_timestamp()))
 and not {{waits_for_previous_attempt(j)}}
 and not {{stopped_by_execution(j)}}
 and not {{is_held_by_itself(j)}}
 and not (select {{claims_are_held}}))

-- rule: claims_are_held
-- true if no job is claimed, after a promotion or a restore of the database: see liveness.models.DatabaseTimeline. A
-- worker may also run an attempt that the database does not know
({{liveness.timeline_is_new}} or exists (select from jobs_takenattempt t where t.job_id = {{unknown_job}}))

-- rule: unknown_job
-- the id in place of a job that the database does not know
'00000000-0000-0000-0000-000000000000'::uuid

-- rule: may_be_claimed_by(s, j)
-- true if pending job j may be claimed now by server s, which has its tags; only one of the `only` jobs (null: any)
({{may_be_claimed(j)}} and not {{has_refused(s, j)}} and (%(only)s::uuid[] is null or j.id = any(%(only)s)))

-- rule: may_have_slots(s, j)
-- true if a claim of server s may give it job j, or must let the jobs behind it wait until the slots for it are free
(j.worker_slots <= (select capacity.largest from capacity)
 or j.worker_slots <= s.max_concurrent and j.available_at < (select clock_timestamp()) - make_interval(secs => {{OVERTAKEN_FOR}}))

-- rule: timed_out(e)
-- true if execution e is cancelled because of its own timeout or deadline. Then its hooks run, as they do after a failure
(e.state = 'CANCELLING' and e.error ->> 'code' in ('EXECUTION_TIMEOUT', 'DEADLINE_MISSED'))

-- rule: runs_after(h, e)
-- true if hook h runs after the end of execution e. None runs after somebody has cancelled the execution
(not e.is_called_off and case h.hook when 'on_error' then e.state <> 'COMPLETED'
                                     when 'on_success' then e.state = 'COMPLETED' else true end)

-- rule: cause_of(j)
-- why step j, or one before it, was skipped although no step failed (null: a step failed, or it was not skipped)
case when j.state = 'SKIPPED' then coalesce(
    j.error ->> 'cause', case when j.error ->> 'code' in ('CONDITION_FALSE', 'STEP_TIMEOUT') then j.error ->> 'code' end)
end

-- rule: bars_dependents(j)
-- true if steps that depend on ended step j are skipped, unless they run although a step was skipped
(j.state = 'SKIPPED' or j.state <> 'COMPLETED' and not j.continue_on_failure)

-- rule: is_in_force(h)
-- true if hold h has not ended
(h.ended_at is null and (h.ends_at is null or h.ends_at > (select clock_timestamp())))

-- rule: covers_set(h, q)
-- true if hold h is about all jobs of a namespace and set of required tags q
((h.namespace is null or h.namespace = q.namespace) and case h.kind
    when 'namespace' then h.value = q.namespace
    when 'tag' then h.value = any(q.required_tags)
    when 'queue' then 'queue:' || h.value = any(q.required_tags)
    else false end)

-- rule: held_queues_of(s)
-- the names of the Celery queues on hold that server s consumes
array(select distinct hold.value from jobs_hold hold
       where hold.kind = 'queue' and {{is_in_force(hold)}} and (hold.namespace is null or hold.namespace = s.namespace)
         and 'queue:' || hold.value = any(s.tags) order by hold.value)

-- rule: action_names(j)
-- the names by which holds and limits know the action of job j: its type, and its path, name, task or image. A Django task
-- has its own name, too. Some are null
array[j.action ->> 'type', j.action ->> 'path', j.action ->> 'name', j.action ->> 'task', j.action ->> 'image',
      case when j.action ->> 'name' = 'django-task' then j.name end]

-- rule: rules_add_keys
-- true if a rule limits an action, a tag or a namespace, so that jobs have keys that they do not name. The first condition
-- is that of the index limitrule_by_content
exists (select from jobs_limitrule r
         where r.pattern ~ '^(action|tag|namespace):' and (r.running is not null or r.starts is not null or r.fair))

-- rule: keys_take_turns
-- true if a rule is fair. The condition is that of the index limitrule_fair
exists (select from jobs_limitrule r where r.fair)

-- rule: all_limits(j)
-- the slots that job j needs, by key: of the keys that it names, and of those that rules add (null: none)
case when (select {{rules_add_keys}}) and not {{needs_no_worker(j)}}
     then limits_with_rules(j.limits, j.namespace, {{action_names(j)}}, j.required_tags) else j.limits end

-- rule: is_quota(r)
-- true if rule r has a quota. It is the condition of the index limitrule_of_quota, which is empty without quotas
(r.max_waiting is not null or r.submissions_per_minute is not null)

-- rule: has_quota(s)
-- true if there is a quota for the jobs that owner s.owner submits to the namespace s.namespace (null: a trigger does)
(s.owner is not null and (select exists (select from jobs_limitrule r where {{is_quota(r)}})) and exists (
    select from jobs_limitrule r
     where {{is_quota(r)}} and r.namespace in ('default', s.namespace)
       and r.pattern = any(limit_patterns('namespace:' || s.namespace))))

-- rule: submissions_key
-- the key of the bucket of submissions to a namespace. Jobs cannot have it
('namespace:' || %(namespace)s::text || ' submissions')

-- rule: is_limited_by_pattern(j)
-- true if the `pattern` of a rule in `namespace` is about the action, a tag or the namespace of job j
(j.kind <> 'CELERY' and not {{needs_no_worker(j)}} and %(namespace)s in ('default', j.namespace)
 and exists (select from unnest(keys_of_job(j.namespace, {{action_names(j)}}, j.required_tags)) key
              where key = %(pattern)s or right(%(pattern)s, 2) = ':*' and starts_with(key, left(%(pattern)s, -1))))

-- rule: covers_content(h, j)
-- true if hold h is about the action of job j (its type or what it runs) or a limit key of it
((h.namespace is null or h.namespace = j.namespace) and case h.kind
    when 'action' then coalesce(h.value = any({{action_names(j)}}), false)
    when 'limit' then coalesce(jsonb_exists(j.limits, h.value), false)
    else false end)

-- rule: covers_execution(h, e)
-- true if hold h is about execution e or one above it. The column of its id is execution_id. `offset 0` makes PostgreSQL
-- look up each row by its key, also with poor statistics. `limit 1` makes it expect one row: each has one parent
(h.kind = 'execution' and (h.namespace is null or h.namespace = e.namespace) and h.value in (
    with recursive above (id, parent_step_id) as (
        select x.id, x.parent_step_id from jobs_execution x where x.id = e.execution_id
         union all
        select x.id, x.parent_step_id
          from (select parent_step_id from above limit 1) above
         cross join lateral (select j.execution_id from jobs_workerjob j where j.id = above.parent_step_id offset 0) p
         cross join lateral (select * from jobs_execution x where x.id = p.execution_id offset 0) x)
    select id::text from above))

-- rule: is_held_set(q)
-- true if a hold covers all jobs of a namespace and set of required tags q
exists (select from jobs_hold hold where {{is_in_force(hold)}} and {{covers_set(hold, q)}})

-- rule: single_jobs_are_held
-- true if there is a hold of an action, a limit key or an execution, so that jobs must be checked one by one
exists (select from jobs_hold hold where hold.kind in ('action', 'limit', 'execution') and {{is_in_force(hold)}})

-- rule: is_held_by_itself(j)
-- true if a hold covers job j because of its action, its limits or its execution
((select {{single_jobs_are_held}}) and exists (
    select from jobs_hold hold
     where {{is_in_force(hold)}} and ({{covers_content(hold, j)}} or {{covers_execution(hold, j)}})))

-- rule: hold_of(j)
-- the id of the oldest hold that covers job j (null: none)
(select hold.id from jobs_hold hold
  where {{is_in_force(hold)}} and ({{covers_set(hold, j)}} or {{covers_content(hold, j)}} or {{covers_execution(hold, j)}})
  order by hold.id limit 1)

-- rule: hold_of_new(j)
-- the id of the oldest hold that covers job j, which is no step (null: none)
(select hold.id from jobs_hold hold
  where {{is_in_force(hold)}} and ({{covers_set(hold, j)}} or {{covers_content(hold, j)}}) order by hold.id limit 1)

-- rule: is_held_by_content(j)
-- true if a hold covers job j because of its action or its limits
exists (select from jobs_hold hold where {{is_in_force(hold)}} and {{covers_content(hold, j)}})

-- rule: name_of_held(h)
-- the name of the trigger or execution that hold h is about (null: it is about something else)
(case h.kind
    when 'trigger' then (select t.name from jobs_trigger t where t.id = h.value::uuid)
    when 'execution' then (select e.name from jobs_execution e where e.id = h.value::uuid) end)

-- rule: hold_in_json(h)
-- hold h as the pages show it
jsonb_build_object('id', h.id, 'kind', h.kind, 'value', h.value, 'note', h.note, 'by', h.by, 'created_at', h.created_at,
                   'ends_at', h.ends_at)

-- rule: parked_after_hold(j)
-- the reason that parks job j after its hold has ended: a limit key of it, as for a new job (null: it is claimable)
(case when j.limits is not null then parked_at_submission(j.limits, j.namespace, j.available_at) end)

-- rule: hold_ended_observed
-- the observed time at which the last hold ended (null: none has). The time before it does not count as waiting
(select max(hold.ended_observed) from jobs_hold hold)

-- rule: waits_for_worker(j)
-- true if unmatched job j waits for a worker without a limit. Either it was submitted that way, or a worker that had it
-- is gone and others may come. A scalar subquery uses the index and never hashes the whole table
(j.unmatched = 'wait' or %(unmatched_after)s::float8 is null
 or %(wait_after_loss)s and j.attempt_count > 0 and coalesce((
    select true from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.job_id = j.id and a.state in {{INTERRUPTED}} and a.reason <> 'not_allowed' and s.state not in {{ALIVE}}
     limit 1), false))

-- rule: unmatched_since(j)
-- the observed time since which pending job j can find a worker: when it began to wait, or when the last maintenance or
-- the last hold ended. During maintenance workers are absent
greatest(j.pending_observed, (select maintenance_ended_observed from liveness_instance), {{hold_ended_observed}})

-- rule: job_columns
name, action, payload, tags, required_tags, priority, timeout_seconds, on_worker_lost, unmatched, max_retries,
        retry_delay_seconds, retry_backoff, retry_on, good_until, traceparent, unique_key, isolation, limits, worker_slots,
        deadline_seconds, deadline_at, on_deadline, notify

-- rule: job_values
-- values of `job_columns` from the fields of `submitted` in JSON. A missing field gets the value of submitted.DEFAULTS
coalesce(name, ''), action, payload, coalesce(tags, '{}'), required_tags, coalesce(priority, 0), timeout_seconds,
        on_worker_lost, coalesce(unmatched, 'fail'), coalesce(max_retries, 0), coalesce(retry_delay_seconds, 0),
        coalesce(retry_backoff, 'fixed'), retry_on, good_until, traceparent, unique_key, isolation,
        {{all_limits(submitted)}}, coalesce(worker_slots, 1),
        deadline_seconds, clock_timestamp() + make_interval(secs => deadline_seconds), {{on_deadline}}, notify

-- rule: on_deadline
-- handling of a missed deadline, from fields in JSON (null: there is no deadline)
case when deadline_seconds is not null then coalesce(on_deadline, 'flag') end

-- rule: deadline_words(j)
-- why job or execution j is cancelled at its deadline
format('it has not ended %%s s after its submission', j.deadline_seconds)

-- rule: can_be_cancelled(j)
-- true if job j has not ended and is neither an execution nor a step that waits
(j.state in ('BLOCKED', 'PENDING') or j.state in {{LIVE}} and j.attempt_id is not null and j.cancel_requested_at is null)

-- rule: was_cancelled_at_deadline(j)
-- true if job or execution j was cancelled for its deadline within the last `lately` seconds. The condition is that of
-- the partial indexes
(j.state = 'CANCELLED' and (j.error -> 'code') = '"DEADLINE_MISSED"'::jsonb
 and j.finished_at > clock_timestamp() - make_interval(secs => %(lately)s))

-- rule: deadlines_judged_until
-- deadlines until this time may cancel (null: none may). It is the begin of the last liveness check, if that check has
-- finished lately. So after an outage of the control plane one whole check runs first, and workers report before it ends
(select clock.finished_at - make_interval(secs => clock.took) from liveness_clock clock
  where clock.finished_at > clock_timestamp() - make_interval(secs => %(late_after)s))

-- rule: job_columns_in_json
-- fields of `job_columns` in JSON; each may be missing
name text, action jsonb, payload jsonb, tags text[], required_tags text[], priority int, timeout_seconds float8,
        on_worker_lost text, unmatched text, max_retries int, retry_delay_seconds float8, retry_backoff text,
        retry_on text[], good_until timestamptz, traceparent text, available_at timestamptz, needs jsonb,
        unique_key text, isolation text, limits jsonb, worker_slots int, deadline_seconds float8, on_deadline text, notify jsonb

-- rule: reported_jobs
-- ids of the jobs whose attempts are reported on
array(select reported.job_id from jobs_attempt reported
       where reported.id = any(%(attempts)s::uuid[]) and reported.server_id = %(server)s)

-- rule: waiting_of_owner(s)
-- number of waiting jobs of the owner of submitter s before this statement, counted up to the limit; 0 without a limit.
-- The order makes the planner read the index of waiting jobs, not all jobs of the owner
case when %(waiting_limit)s::int is null then 0 else (
    select count(*) from (
        select from jobs_workerjob j where j.owner_id = s.owner and j.state = 'PENDING'
         order by j.required_tags limit %(waiting_limit)s::int
    ) waiting) end

-- rule: waiting_tag_sets(s)
-- number of sets of required tags of the waiting jobs of submitter s together with the `submitted` ones, counted up to
-- the limit. 0 if there is no new set or no limit
case when %(tag_sets_limit)s::int is null then 0 else (
    select case when added.sets = 0 then 0 else added.sets + (
               with recursive own_sets (required_tags) as (
                   (select j.required_tags from jobs_workerjob j
                     where j.owner_id = s.owner and j.state = 'PENDING' order by j.required_tags limit 1)
                    union all
                   select next_set.required_tags
                     from own_sets
                    cross join lateral (
                          select j.required_tags from jobs_workerjob j
                           where j.owner_id = s.owner and j.state = 'PENDING' and j.required_tags > own_sets.required_tags
                           order by j.required_tags limit 1) next_set
               )
               select count(*) from (select from own_sets limit %(tag_sets_limit)s::int) counted) end
      from (select count(distinct new.required_tags) as sets from submitted new
             where new.owner = s.owner and not exists (
                   select from jobs_workerjob j
                    where j.owner_id = s.owner and j.state = 'PENDING' and j.required_tags = new.required_tags)) added) end

-- rule: action_name(j)
-- a short name of what job j runs: the type and the path, name, task or image. A Django task has its own name
left(concat_ws(' ', j.action ->> 'type', coalesce(
    case when j.action ->> 'type' = 'handler' and j.action ->> 'name' = 'django-task' then nullif(j.name, '') end,
    j.action ->> 'path', j.action ->> 'name', j.action ->> 'task', j.action ->> 'image')), 200)

-- rule: duration_bin(d)
-- the bin that counts a duration of `d` seconds, as in jobs/history.py
floor({{BINS_PER_DOUBLING}} * log(2.0, greatest(d.seconds * 1000, 1)::numeric))::int

-- rule: is_of_cluster(e)
-- true if the server of event e is in the cluster that the caller asked for (empty: any cluster)
(%(cluster)s::text = '' or e.server_id in (select of_cluster.id from liveness_server of_cluster where of_cluster.cluster = %(cluster)s))

-- rule: is_sought_line(l)
-- true if log line l is of the wanted stream and contains the wanted text, in any case (null: any stream, any text)
(%(stream)s::text is null or l.stream = %(stream)s)
and (%(holds)s::text is null or strpos(lower(l.line), lower(%(holds)s)) > 0)

-- rule: size_of(i)
-- the number or duration that measures how bad incident i is
coalesce(i.details ->> 'count', i.details ->> 'silent', i.details ->> 'seconds', i.details ->> 'per_minute')::float8

-- rule: is_in_namespaces(row)
-- true if row is in one of the `namespaces` of the caller (null: all)
(%(namespaces)s::text[] is null or row.namespace = any(%(namespaces)s))

-- rule: counted_rows(row)
-- number of rows in the `namespaces`, and whether there may be more rows than were counted
count(*) filter (where {{is_in_namespaces(row)}}), count(*) = %(counted)s

-- rule: title_of(j)
-- the name of job j, otherwise the name of what it runs, otherwise its step key
coalesce(nullif(j.name, ''), j.action ->> 'path', j.action ->> 'task', j.action ->> 'name', j.step, '')

-- rule: waits_since(j)
-- when pending job j began to wait: when it became available, or when its last attempt ended, if that was later
greatest(j.available_at, (
    select a.finished_at from jobs_attempt a where j.attempt_count > 0 and a.job_id = j.id order by a.number desc limit 1))

-- rule: cause_of_recovery(s)
-- why the attempts of lost server s are recovered, as the metric `controlplane_recovery_seconds` names it
(case
    when {{outstays_drain(s)}} then 'drain'
    when s.ended_at is not null or s.state in {{STOPPED}} then 'reported'
    when s.state_actor like 'operator:%%' then 'operator'
    else 'silence'
end)
