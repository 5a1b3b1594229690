-- statement: register_server
-- Register a server, or find it by its instance id. The token's rights are checked here too, under `lock_registrar`.
-- takes: digest bytea, type text, tags text[], cluster text, instance_id uuid, name text, hostname text, pid int,
--   program text, given_tags text[], max_concurrent int, capabilities jsonb, heartbeat_interval float8, timeout float8,
--   termination_grace_period float8, worker_task_restart_strategy text, reactivate_on_heartbeat bool
-- returns: id uuid, token_id uuid, token_version int, type text, name text, cluster text, state text,
--   heartbeat_interval float8, timeout float8, termination_grace_period float8, worker_task_restart_strategy text,
--   fence_after float8|null, is_new bool
-- row: RegistrationRow
with registrar as materialized (
    select t.id, t.namespace from liveness_apitoken t
     where t.digest = %(digest)s and t.role = 'worker' and t.revoked_at is null
       and (t.expires_at is null or t.expires_at > clock_timestamp())
       and (t.types is null or %(type)s = any(t.types))
       and (t.tags is null or %(tags)s::text[] <@ t.tags)
       and (t.cluster is null or t.cluster = %(cluster)s)
       and (t.max_servers is null
            or exists (select from liveness_server s where s.token_id = t.id and s.instance_id = %(instance_id)s)
            or (select count(*) from liveness_server s where s.token_id = t.id and s.state in {{MAY_HEARTBEAT}}) < t.max_servers)
       -- Race with a revocation of the token: the revocation waits for this row and then ends this server too, or this
       -- statement waits for the revocation and finds no valid token.
       for share
)
insert into liveness_server as s (
    type, name, cluster, namespace, hostname, pid, version, tags, given_tags, max_concurrent, capabilities, token_id,
    instance_id, heartbeat_interval, timeout, termination_grace_period, worker_task_restart_strategy, reactivate_on_heartbeat)
select %(type)s, %(name)s, %(cluster)s, registrar.namespace, %(hostname)s, %(pid)s, %(program)s, %(tags)s::text[],
       %(given_tags)s::text[], %(max_concurrent)s, %(capabilities)s::jsonb, registrar.id, %(instance_id)s,
       %(heartbeat_interval)s, %(timeout)s, %(termination_grace_period)s, %(worker_task_restart_strategy)s,
       %(reactivate_on_heartbeat)s
  from registrar
    -- This changes nothing. It waits for a concurrent registration of the same instance, so that its row is returned.
    on conflict (token_id, instance_id) do update set instance_id = excluded.instance_id
returning s.id, s.token_id, s.token_version, s.type, s.name, s.cluster, s.state, s.heartbeat_interval, s.timeout,
          s.termination_grace_period, s.worker_task_restart_strategy, {{fence_after(s)}} as fence_after, xmax = 0 as is_new

-- statement: lock_registrar
-- Lock a token that has a limit of servers, so that concurrent registrations count its servers one after the other.
-- takes: digest bytea
-- returns: id uuid
select t.id from liveness_apitoken t where t.digest = %(digest)s and t.max_servers is not null for no key update
