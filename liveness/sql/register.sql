-- Register a process, or find it again by its instance id; who may is judged here as well.
with registrar as (
    select id from liveness_apitoken
     where digest = %(digest)s and role = 'worker' and revoked_at is null
       and (expires_at is null or expires_at > clock_timestamp())
),
made as (
    insert into liveness_server (
        type, name, cluster, hostname, pid, version, tags, max_concurrent, capabilities, token_id, instance_id,
        heartbeat_interval, timeout, termination_grace_period, worker_task_restart_strategy)
    select %(type)s, %(name)s, %(cluster)s, %(hostname)s, %(pid)s, %(program)s, %(tags)s::text[],
           %(max_concurrent)s, %(capabilities)s::jsonb, registrar.id, %(instance_id)s,
           %(heartbeat_interval)s, %(timeout)s, %(termination_grace_period)s, %(worker_task_restart_strategy)s
      from registrar
        on conflict (token_id, instance_id) do nothing
 returning *
)
select *, true as is_new from made
union all
select s.*, false from liveness_server s join registrar on registrar.id = s.token_id
 where s.instance_id = %(instance_id)s
