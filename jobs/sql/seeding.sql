-- rule: uuid7_of_birth
-- a version 7 UUID that looks as if it was made at the moment `born`
encode(overlay(
    uuid_send(uuid7()) placing substring(int8send((extract(epoch from born) * 1000)::bigint) from 3) from 1 for 6),
    'hex')::uuid

-- statement: relax_guards
-- Switch these database triggers off until the end of the transaction, because seeding inserts rows in their last state.
-- takes: triggers text[]
-- returns: set_config text
select set_config('pgtrigger.ignore', %(triggers)s::text[]::text, true)

-- statement: make_servers
-- Create fake servers with the numbers `first` to `last`. Most run and send heartbeats; a few are in each other state.
-- They have the events that led to their state, and their last 60 heartbeats, with some missing. The first is a worker.
-- takes: first int, last int, capacity int, token uuid, interval float8, timeout float8
-- returns: id uuid, works bool
with paths (least, path) as (values
    (0, '{CREATED,RUNNING}'::text[]), (88, '{CREATED,RUNNING,MAINTENANCE}'), (89, '{CREATED}'),
    (90, '{CREATED,RUNNING,TERMINATING}'), (91, '{CREATED,RUNNING,TERMINATING,TERMINATED_GRACEFULLY}'),
    (92, '{CREATED,RUNNING,ERROR}'), (93, '{CREATED,RUNNING,DISCONNECTED}'),
    (94, '{CREATED,RUNNING,DISCONNECTED,NOT_RUNNING}'), (95, '{CREATED,RUNNING,DISCONNECTED,NOT_RUNNING,INACTIVE}'),
    (97, '{CREATED,RUNNING,TERMINATING,TERMINATED_GRACEFULLY,NOT_RUNNING,INACTIVE}'),
    (99, '{CREATED,RUNNING,TERMINATING,TERMINATED_FORCED}')
),
numbered as materialized (
    select n, clock_timestamp() as now, clock_timestamp() - make_interval(mins => 600 + n * 17 %% 20000) as born,
           (select path from paths where least <= (n - 1) * 37 %% 100 order by least desc limit 1) as path,
           case when n %% 25 = 0 then (array['EXECUTOR', 'SCHEDULER', 'WEBSERVER', 'INDEXER'])[n / 25 %% 4 + 1]
                else 'WORKER' end as type
      from generate_series(%(first)s::int, %(last)s::int) n
),
new_servers as materialized (
    select *, {{uuid7_of_birth}} as id, path[cardinality(path)] as state,
           format('seed-%%s-%%s', lower(type), lpad(n::text, 5, '0')) as name,
           -- A few servers are silent.
           now - make_interval(secs => case when n %% 100 = 20 then 3600 + n %% 600 else n * 7 %% 290 end) as last_heartbeat,
           now - make_interval(secs => n * 13 %% 500) as changed
      from numbered
),
stored_servers as (
    insert into liveness_server (
        id, type, name, cluster, hostname, pid, version, tags, max_concurrent, token_id, instance_id,
        heartbeat_interval, timeout, termination_grace_period, worker_task_restart_strategy, state, state_changed_at,
        created_at, last_heartbeat_at, heard_observed, metrics, cordoned_by, cordon_reason)
    select id, type, name, (array['default', 'north', 'south'])[n %% 3 + 1], 'host-' || n / 8, 1000 + n,
           (array['1.4.2', '1.4.1', '1.3.0'])[case when n %% 10 < 7 then 1 when n %% 10 < 9 then 2 else 3 end],
           case when type <> 'WORKER' then '{}'::text[] when n %% 4 = 1 then '{gpu,python,script}'
                else '{python,script}' end,
           %(capacity)s, %(token)s, gen_random_uuid(), %(interval)s, %(timeout)s, 300, 'AFTER_TERMINATION_GRACE_PERIOD',
           state, changed, born, last_heartbeat, observed_now() - extract(epoch from now - last_heartbeat),
           jsonb_build_object('cpu_percent', n * 31 %% 100, 'memory_percent', n * 17 %% 100),
           case when n %% 60 = 7 then 'operator:seed' end, case when n %% 60 = 7 then 'for trying out' else '' end
      from new_servers
),
stored_events as (
    insert into liveness_serverevent (
        at, subject_type, subject_id, subject_name, server_id, server_name, from_state, to_state, actor, reason)
    select changed - (cardinality(path) - place) * interval '20 s', 'server', id, name, id, name, path[place - 1], path[place],
           case when path[place] in ('DISCONNECTED', 'NOT_RUNNING', 'INACTIVE') then 'liveness' else 'server' end,
           case path[place] when 'DISCONNECTED' then 'silent for longer than its timeout' else '' end
      from new_servers cross join lateral generate_series(2, cardinality(path)) place
     order by 1
),
stored_heartbeats as (
    insert into liveness_heartbeat (at, server_id, cpu_percent, memory_percent)
    select last_heartbeat - beat * make_interval(secs => %(interval)s), id,
           (n * 31 + beat * beat) %% 100, (n * 17 %% 60 + beat / 2)
      from new_servers cross join generate_series(0, 59) beat
     where n %% 40 > 0 or beat not between 10 and 14
     order by 1
)
select id, type = 'WORKER' and state = 'RUNNING' as works from new_servers where type = 'WORKER' order by n

-- statement: make_jobs
-- Create fake jobs with the numbers `first` to `last` of `jobs` in total, from 25 days ago to now, with their attempts
-- and superseded reports. Of the last three per cent, a third runs or is claimed, and the others wait. Most of the
-- older jobs completed.
-- takes: jobs numeric, first int, last int, working uuid[], workers uuid[], owner uuid
-- returns: jobs bigint
with numbered as materialized (
    select n, clock_timestamp() as now, n > %(jobs)s * 0.97 as recent,
           clock_timestamp() - case when n > %(jobs)s * 0.97
               then interval '1 hour' * (1 - n::float8 / %(jobs)s) / 0.03 + interval '10 s'
               else interval '25 days' * (1 - n::float8 / (0.97 * %(jobs)s)) + interval '1 hour' end as born
      from generate_series(%(first)s::int, %(last)s::int) n
),
ended as materialized (
    select *, {{uuid7_of_birth}} as id,
           case when recent then case when n %% 3 < 2 then 'PENDING' when n %% 30 = 2 then 'CLAIMED' else 'RUNNING' end
                when n %% 100 < 5 then 'FAILED' when n %% 100 < 7 then 'CANCELLED' when n %% 100 < 8 then 'EXPIRED'
                else 'COMPLETED' end as state,
           case when recent then null
                else (array['NO_MATCHING_WORKER', 'RESUBMISSIONS_EXHAUSTED', 'WORKER_CRASHED', 'EXIT_CODE', 'ValueError'])
                     [n %% 100 + 1] end as code,
           case when recent then case when n %% 3 = 2 or n %% 20 = 0 then 1 else 0 end
                when n %% 100 in (0, 5, 7) then 0 when n %% 100 = 1 then 4 when n %% 40 = 8 then 2 else 1 end as tries
      from numbered
),
new_jobs as materialized (
    select *, least(make_interval(secs => 30 + n * 7.919::float8 - floor(n * 7.919 / 390) * 390),
                    (now - born) / (tries + 1)) as step,
           case when state in {{LIVE}} then uuid7() end as attempt_id,
           case when n %% 10 = 3 then '{gpu,script}'::text[] else '{script}' end as required_tags,
           case when state in {{LIVE}} then (%(working)s::uuid[])[1 + n / 3 %% cardinality(%(working)s::uuid[])]
                else (%(workers)s::uuid[])[1 + n %% cardinality(%(workers)s::uuid[])] end as server
      from ended
),
new_attempts as materialized (
    select n, number, id as job, server, code, step, attempt_id, born + step * (number - 0.95) as born,
           case when number < tries or state = 'PENDING' then 'RESUBMITTED' else state end as attempt_state
      from new_jobs cross join lateral generate_series(1, tries) number
),
jobs as (
    insert into jobs_workerjob (
        id, state, attempt_id, owner_id, key, fingerprint, action, payload, tags, required_tags, priority,
        on_worker_lost, good_until, attempt_count, resubmissions, output, error, created_at, available_at, finished_at)
    select id, state, attempt_id, %(owner)s, case when n %% 10 = 0 then 'seed-' || n end, sha256(n::text::bytea),
           jsonb_build_object('type', 'script', 'runner', 'local', 'command', 'report --page ' || n),
           jsonb_build_object('page', n), array_remove(required_tags, 'script'), required_tags,
           case when n %% 5 = 0 then 5 else 0 end, case when code = 'WORKER_CRASHED' then 'FAIL' else 'RESUBMIT' end,
           case when state = 'EXPIRED' then born + step / 2 end, tries,
           case when state = 'PENDING' then tries else greatest(tries - 1, 0) end,
           case when state = 'COMPLETED' then jsonb_build_object('rows', n %% 1000) end,
           case when code is not null then jsonb_build_object('code', code, 'message', 'made up by seed')
                when state = 'EXPIRED' then '{"code": "EXPIRED", "message": "made up by seed"}' end,
           born, born,
           case when state in {{TERMINAL}} then born + step * case when tries = 0 then 0.5 else tries - 0.05 end end
      from new_jobs order by n
),
attempts as (
    insert into jobs_attempt (
        id, job_id, number, server_id, state, claimed_at, started_at, finished_at, heartbeat_at, started_observed,
        error, ended_by, reason)
    select coalesce(attempt_id, {{uuid7_of_birth}}), job, number, server, attempt_state, born,
           case when attempt_state <> 'CLAIMED' then born + step * 0.1 end,
           case when attempt_state not in {{LIVE}} then born + step * 0.9 end, born + step * 0.5,
           case when attempt_state = 'RUNNING' then observed_now() end,
           case when attempt_state = 'FAILED' then jsonb_build_object('code', code, 'message', 'made up by seed') end,
           case when attempt_state in {{LIVE}} then '' when attempt_state = 'RESUBMITTED' then 'liveness' else 'server' end,
           case when attempt_state = 'RESUBMITTED' then 'its server was DISCONNECTED' when attempt_state = 'FAILED' then code else '' end
      from new_attempts order by n, number
 returning id, job_id, state, finished_at
),
stored_superseded_reports as (
    insert into jobs_latereport (at, job_id, attempt_id, event, reason, body)
    select finished_at + interval '5 s', job_id, id, 'COMPLETED', 'attempt_superseded', '{}'
      from attempts where state = 'RESUBMITTED' and id::text like '%%a'
     order by 1
)
select count(*) as jobs from new_jobs
