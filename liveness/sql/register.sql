-- Register a process, or find it again by its instance id; who may is judged here as well.
with registrar as (
    select id from liveness_apitoken
     where digest = %(digest)s and role = 'worker' and revoked_at is null
       and (expires_at is null or expires_at > clock_timestamp())
)
insert into liveness_server as s (
    type, name, cluster, hostname, pid, version, tags, max_concurrent, capabilities, token_id, instance_id,
    heartbeat_interval, timeout, termination_grace_period, worker_task_restart_strategy, reactivate_on_heartbeat)
select %(type)s, %(name)s, %(cluster)s, %(hostname)s, %(pid)s, %(program)s, %(tags)s::text[],
       %(max_concurrent)s, %(capabilities)s::jsonb, registrar.id, %(instance_id)s,
       %(heartbeat_interval)s, %(timeout)s, %(termination_grace_period)s, %(worker_task_restart_strategy)s,
       %(reactivate_on_heartbeat)s
  from registrar
    -- Changes nothing, but waits for the one who registers the same at this moment, and finds what he made.
    on conflict (token_id, instance_id) do update set instance_id = excluded.instance_id
returning s.*, {{fence_after}} as fence_after, xmax = 0 as is_new
