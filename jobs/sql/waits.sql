-- statement: begin_waits
-- Set steps that wait to RUNNING. Their payload has the values of the references in their action. A wait for a signal is
-- due at once, because the signal may have come before. It counts signals since its tree of executions was created, or
-- `since_seconds` before now. Called under `lock_roots`.
-- takes: steps uuid[]
-- returns: id uuid
update jobs_workerjob j
   set state = 'RUNNING', wait_due_at = wait.due_at, wait_timeout_observed = observed_now() + wait.timeout,
       wait_signal = wait.payload ->> 'signal',
       wait = jsonb_build_object('until', {{moment_in_json(wait)}}) || case
           when wait.payload ? 'signal'
           then jsonb_build_object('what', 'signal', 'signal', wait.payload -> 'signal', 'since', wait.since)
           when wait.payload ? 'message'
           then jsonb_build_object('what', 'answer', 'message', wait.payload -> 'message',
                                   'choices', j.action -> 'choices', 'fields', j.action -> 'fields',
                                   'group', j.action -> 'group')
           else '{"what": "time"}' end
  from (select s.id, s.payload, limits.timeout, ends.at as ends_at,
               case when s.payload ? 'signal' then now.at
                    when not s.payload ? 'message' then ends.at end as due_at,
               least(r.created_at, now.at - make_interval(secs => (s.action ->> 'since_seconds')::float8)) as since
          from jobs_workerjob s
          join jobs_execution e on e.id = s.execution_id
          join jobs_execution r on r.id = e.root_id
         cross join lateral (select clock_timestamp() as at) now
         cross join lateral (select (s.action ->> 'timeout_seconds')::float8 as timeout) limits
         cross join lateral (
               select case when s.payload ? 'until'
                   -- Python has no time zones for the first and the last day of its calendar.
                   then least(greatest((s.payload ->> 'until')::timestamptz, '0001-01-02Z'), '9999-12-30Z')
                   else now.at + make_interval(secs => coalesce((s.payload ->> 'seconds')::float8, limits.timeout))
                   end as at) ends
         where s.id = any(%(steps)s::uuid[]) and s.state = 'PENDING' and s.parked_by is null
           and s.action ->> 'type' in ('wait', 'approval')) wait
 where j.id = any(array[wait.id])
returning j.id

-- statement: end_due_waits
-- Complete steps whose wait for a time is over, one batch, and count them.
-- takes: only uuid[], batch bigint
-- returns: state text, jobs bigint, executions uuid[]|null, evaluations uuid[]|null, listed uuid[]
-- row: SweptJobs
with waits_to_end as (
    select j.id
      from (select id from jobs_workerjob
             -- A subquery is evaluated once, so the index is read only up to that time.
             where state = 'RUNNING' and wait_due_at <= (select clock_timestamp()) and wait_signal is null
               and (%(only)s::uuid[] is null or id = any(%(only)s))
             order by wait_due_at) due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and j.state = 'RUNNING' and j.wait_due_at <= clock_timestamp() and {{root_is_locked(j)}}
              for no key update skip locked
           ) j
     limit %(batch)s
),
-- due: select id from waits_to_end
ended_waits as (
    update jobs_workerjob j
       set state = 'COMPLETED', finished_at = clock_timestamp()
      from waits_to_end
     where j.id = any(array[waits_to_end.id])
 returning j.id as job_id, j.state, j.execution_id, j.kind
)
select state, count(*) as jobs, {{ends_to_propagate}}
  from ended_waits group by state

-- statement: end_signalled_waits
-- Complete steps whose signal has come, one batch, and count them. These steps wait for one of the `signals`, or they
-- have just begun to wait. The body of the signal becomes their output.
-- takes: signals uuid[], signal_kept float8, only uuid[], batch bigint
-- returns: state text, jobs bigint, executions uuid[]|null, evaluations uuid[]|null, listed uuid[]
-- row: SweptJobs
with candidates as (
    select j.id from (select distinct namespace, name from jobs_signal where id = any(%(signals)s::uuid[])) named
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.state = 'RUNNING' and j.namespace = named.namespace and j.wait_signal = named.name) j
     union
    select j.id from jobs_workerjob j
     where j.state = 'RUNNING' and j.wait_due_at <= (select clock_timestamp()) and j.wait_signal is not null
),
waits_to_end as (
    select j.id, j.signal
      from (select id from candidates where %(only)s::uuid[] is null or id = any(%(only)s)) due
     cross join lateral (
           select j.id, {{signal_of(j)}} as signal from jobs_workerjob j
            where j.id = due.id and {{is_waiting(j)}}
              and case when {{signal_of(j)}} is null then false else {{root_is_locked(j)}} end
              for no key update skip locked
           ) j
     limit %(batch)s
),
-- due: select id from waits_to_end
ended_waits as (
    update jobs_workerjob j
       set state = 'COMPLETED', finished_at = clock_timestamp(), output = s.body
      from waits_to_end join jobs_signal s on s.id = waits_to_end.signal
     where j.id = any(array[waits_to_end.id])
 returning j.id as job_id, j.state, j.execution_id, j.kind
)
select state, count(*) as jobs, {{ends_to_propagate}}
  from ended_waits group by state

-- statement: settle_signals
-- Mark signals as delivered for which no step waits any more, and steps as looked at whose signal has not come. A step
-- that another transaction commits later is looked at afterwards, and then it finds these signals.
-- takes: signals uuid[], signal_kept float8
-- returns: id uuid
with looked_at as (
    update jobs_workerjob j
       set wait_due_at = null
     where j.id = any(array(
           select j.id from jobs_workerjob j
            where j.state = 'RUNNING' and j.wait_due_at <= (select clock_timestamp()) and j.wait_signal is not null
              and {{signal_of(j)}} is null
            order by j.id
              for no key update skip locked))
 returning j.id
),
delivered as (
    update jobs_signal s
       set is_delivered = true
     where s.id = any(%(signals)s::uuid[]) and not exists (
           select from jobs_workerjob j
            where j.state = 'RUNNING' and j.namespace = s.namespace and j.wait_signal = s.name
              and {{signal_of(j)}} = s.id)
 returning s.id
)
select id from delivered

-- statement: end_timed_out_waits
-- End steps that have waited longer than their timeout, by observed time, one batch, and count them. Their action
-- decides: they are FAILED or SKIPPED, or one of the choices is taken as if somebody had chosen it.
-- takes: only uuid[], batch bigint
-- returns: state text, jobs bigint, executions uuid[]|null, evaluations uuid[]|null, listed uuid[]
-- row: SweptJobs
with waits_to_end as (
    select j.id
      from (select j.id from jobs_workerjob j
             where j.state = 'RUNNING' and j.wait_timeout_observed <= (select reading from liveness_clock)
               and (%(only)s::uuid[] is null or j.id = any(%(only)s))
             order by j.wait_timeout_observed) due
     cross join lateral (
           select j.id from jobs_workerjob j
            where j.id = due.id and {{is_waiting(j)}} and {{root_is_locked(j)}}
              for no key update skip locked
           ) j
     limit %(batch)s
),
-- due: select id from waits_to_end
answers as (
    select j.id, chosen.answer, chosen.answer in ('fail', 'skip') as is_timeout,
           format('waited %%s s for %%s', (j.action ->> 'timeout_seconds')::float8,
                  case when j.wait_signal is null then 'an answer' else format('the signal %%s', j.wait_signal) end) as message
      from waits_to_end join jobs_workerjob j using (id)
     cross join lateral (select coalesce(j.action ->> 'on_timeout', 'fail') as answer) chosen
),
ended_waits as (
    update jobs_workerjob j
       set state = case answers.answer when 'skip' then 'SKIPPED' when 'fail' then 'FAILED' else {{state_after(answers)}} end,
           finished_at = clock_timestamp(),
           output = case when not answers.is_timeout then jsonb_build_object(
               'choice', answers.answer, 'values', '{}'::jsonb, 'by', null, 'at', {{now_in_json}}) end,
           error = case
               when answers.is_timeout then jsonb_build_object('code', 'STEP_TIMEOUT', 'message', answers.message)
               when answers.answer = 'reject' then jsonb_build_object(
                   'code', 'REJECTED', 'message', format('rejected because it %%s', answers.message)) end
      from answers
     where j.id = any(array[answers.id])
 returning j.id as job_id, j.state, j.execution_id, j.kind, j.step, answers.message
),
new_events as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'STEP_TIMEOUT', step, format('%%s is %%s: it %%s', step, state, message) from ended_waits
)
select state, count(*) as jobs, {{ends_to_propagate}}
  from ended_waits group by state

-- statement: answer_step
-- End a step that waits for an answer. Return no row if it does not wait any more. Called under `lock_roots`.
-- takes: job uuid, answer text, values jsonb, by text, note text
-- returns: id uuid
update jobs_workerjob j
   set state = {{state_after(given)}}, finished_at = clock_timestamp(),
       output = jsonb_build_object('choice', given.answer, 'values', %(values)s::jsonb, 'by', %(by)s::text, 'at', {{now_in_json}}),
       error = case when given.answer = 'reject' then jsonb_build_object(
           'code', 'REJECTED', 'message', coalesce(nullif(%(note)s::text, ''), format('rejected by %%s', %(by)s::text))) end
  from (select %(answer)s::text as answer) given
 where j.id = %(job)s and {{waits_for_answer(j)}}
returning j.id

-- statement: read_waiting_answers
-- Read the steps that wait longest for an answer, with their questions. Called by the alert rules.
-- takes: most bigint
-- returns: id uuid, message text
-- row: WaitingAnswer
select j.id, j.wait ->> 'message' as message from jobs_workerjob j where {{waits_for_answer(j)}} order by j.id limit %(most)s
