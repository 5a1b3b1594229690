-- Make up jobs number `first` to `last` of `jobs`, from long ago to just now, with their attempts and late reports. Of
-- the last three per cent a third runs or is claimed, and the rest waits; of the others most completed.
with numbered as materialized (
    select n, clock_timestamp() as now, n > %(jobs)s * 0.97 as recent,
           clock_timestamp() - case when n > %(jobs)s * 0.97
               then interval '1 hour' * (1 - n::float8 / %(jobs)s) / 0.03 + interval '10 s'
               else interval '25 days' * (1 - n::float8 / (0.97 * %(jobs)s)) + interval '1 hour' end as born
      from generate_series(%(first)s::int, %(last)s::int) n
),
ended as materialized (
    select *, {{seed_id}} as id,
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
made as materialized (
    select *, least(make_interval(secs => 30 + n * 7.919::float8 - floor(n * 7.919 / 390) * 390),
                    (now - born) / (tries + 1)) as step,
           case when state in {{LIVE}} then uuid7() end as attempt_id,
           case when n %% 10 = 3 then '{gpu,script}'::text[] else '{script}' end as required_tags,
           case when state in {{LIVE}} then (%(working)s::uuid[])[1 + n / 3 %% cardinality(%(working)s::uuid[])]
                else (%(workers)s::uuid[])[1 + n %% cardinality(%(workers)s::uuid[])] end as server
      from ended
),
tried as materialized (
    select n, number, id as job, server, code, step, attempt_id, born + step * (number - 0.95) as born,
           case when number < tries or state = 'PENDING' then 'RESUBMITTED' else state end as became
      from made cross join lateral generate_series(1, tries) number
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
      from made order by n
),
attempts as (
    insert into jobs_attempt (
        id, job_id, number, server_id, state, claimed_at, started_at, finished_at, heartbeat_at, started_observed,
        error, ended_by, reason)
    select coalesce(attempt_id, {{seed_id}}), job, number, server, became, born,
           case when became <> 'CLAIMED' then born + step * 0.1 end,
           case when became not in {{LIVE}} then born + step * 0.9 end, born + step * 0.5,
           case when became = 'RUNNING' then observed_now() end,
           case when became = 'FAILED' then jsonb_build_object('code', code, 'message', 'made up by seed') end,
           case when became in {{LIVE}} then '' when became = 'RESUBMITTED' then 'liveness' else 'server' end,
           case when became = 'RESUBMITTED' then 'its server was DISCONNECTED' when became = 'FAILED' then code else '' end
      from tried order by n, number
 returning id, job_id, state, finished_at
),
late as (
    insert into jobs_latereport (at, job_id, attempt_id, event, reason, body)
    select finished_at + interval '5 s', job_id, id, 'COMPLETED', 'attempt_superseded', '{}'
      from attempts where state = 'RESUBMITTED' and id::text like '%%a'
     order by 1
)
select count(*) as jobs from made
