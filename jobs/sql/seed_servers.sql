-- Make up servers number `first` to `last` of `servers`: most run and were heard, some are in each other state; with
-- the events that led them there and their last 60 heartbeats, of which some are missing. The first is a worker.
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
made as materialized (
    select *, {{seed_id}} as id, path[cardinality(path)] as state,
           format('seed-%%s-%%s', lower(type), lpad(n::text, 5, '0')) as name,
           -- A few are late: they were not heard for a while.
           now - make_interval(secs => case when n %% 100 = 20 then 3600 + n %% 600 else n * 7 %% 290 end) as heard,
           now - make_interval(secs => n * 13 %% 500) as changed
      from numbered
),
servers as (
    insert into liveness_server (
        id, type, name, cluster, hostname, pid, version, tags, max_concurrent, token_id, instance_id,
        heartbeat_interval, timeout, termination_grace_period, worker_task_restart_strategy, state, state_changed_at,
        created_at, last_heartbeat_at, heard_observed, metrics, cordoned_by, cordon_reason)
    select id, type, name, (array['default', 'north', 'south'])[n %% 3 + 1], 'host-' || n / 8, 1000 + n,
           (array['1.4.2', '1.4.1', '1.3.0'])[case when n %% 10 < 7 then 1 when n %% 10 < 9 then 2 else 3 end],
           case when type <> 'WORKER' then '{}'::text[] when n %% 4 = 1 then '{gpu,python,script}'
                else '{python,script}' end,
           %(capacity)s, %(token)s, gen_random_uuid(), %(interval)s, %(timeout)s, 300, 'AFTER_TERMINATION_GRACE_PERIOD',
           state, changed, born, heard, observed_now() - extract(epoch from now - heard),
           jsonb_build_object('cpu_percent', n * 31 %% 100, 'memory_percent', n * 17 %% 100),
           case when n %% 60 = 7 then 'operator:seed' end, case when n %% 60 = 7 then 'for trying out' else '' end
      from made
),
events as (
    insert into liveness_serverevent (at, server_id, server_name, from_state, to_state, actor, reason)
    select changed - (cardinality(path) - place) * interval '20 s', id, name, path[place - 1], path[place],
           case when path[place] in ('DISCONNECTED', 'NOT_RUNNING', 'INACTIVE') then 'liveness' else 'server' end,
           case path[place] when 'DISCONNECTED' then 'silent for longer than its timeout' else '' end
      from made cross join lateral generate_series(2, cardinality(path)) place
     order by 1
),
beats as (
    insert into liveness_heartbeat (at, server_id, role)
    select heard - beat * make_interval(secs => %(interval)s), id, 'server'
      from made cross join generate_series(0, 59) beat
     where n %% 40 > 0 or beat not between 10 and 14
     order by 1
)
select id, type = 'WORKER' and state = 'RUNNING' as works from made where type = 'WORKER' order by n
