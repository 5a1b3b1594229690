-- rule: is_held_by_brake(s)
-- a brake holds server s: it keeps its state although it is silent
(exists (select from liveness_brake brake where {{holds(brake, s)}}))

-- rule: holds(b, s)
-- brake b holds server s
(b.released_by is null and b.type = s.type and b.namespace = s.namespace and b.cluster in ('', s.cluster))

-- rule: brake_key(b)
-- the key of brake b in events and incidents
(b.type || case when b.namespace = 'default' then '' else '@' || b.namespace end
 || case when b.cluster = '' then '' else '/' || b.cluster end)

-- rule: brake_words(b)
-- the name of brake b for people
(b.type || case when b.cluster = '' then '' else ' of cluster ' || b.cluster end
 || case when b.namespace = 'default' then '' else ' of namespace ' || b.namespace end)

-- rule: histogram_bucket
-- the upper bound of the histogram bucket of `seconds`
coalesce((select min(le) from unnest(array{{BUCKETS}}) le
           where seconds <= le)::text, '+Inf')

-- rule: check_age
-- seconds since the last successful liveness check (null: there was none)
(select extract(epoch from clock_timestamp() - clock.finished_at)::float8 from liveness_clock clock)

-- rule: is_falling_silent(s)
-- alive server s is late at the reading of the check, and would be disconnected within one timeout
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed
     >= least(s.heartbeat_interval * %(staleness_multiplier)s, s.timeout - s.heartbeat_interval)
 and {{disconnected_at(s)}} <= clock.reading + s.timeout)

-- rule: fence_after(s)
-- seconds after its last heartbeat at which server s stops its jobs' code by itself (null: never). That is 20 per cent
-- of its timeout before other workers could get the jobs
(case when s.worker_task_restart_strategy <> 'NEVER' then
    -- Rounded, because sums of large floats have rounding errors.
    round(greatest({{given_away_at(s)}} - s.heard_observed - s.timeout * {{FENCE_MARGIN}}, 0)::numeric, 3)::float8
end)

-- rule: is_fresh(s)
-- server s sent its last heartbeat within STALENESS_MULTIPLIER intervals. Exactly at the limit it is stale. A server
-- without a heartbeat is stale too. Observed time counts, so that an outage of the control plane makes no server stale
(s.last_heartbeat_at is not null
 and (select observed_now()) - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s)

-- rule: heard_now(s)
-- the observed time that a heartbeat of server s gets now. Observed time between checks is an estimate, and the next
-- check may lower it. The time of a server's heartbeat, or of code on it, never goes back
greatest(s.heard_observed, observed_now())

-- rule: cpu_percent(h)
-- the CPU use of the machine in heartbeat h, limited to 0 to 100 (null: it has no such number)
(case when jsonb_typeof(h.metrics -> 'cpu_percent') = 'number'
      then least(greatest((h.metrics ->> 'cpu_percent')::numeric, 0), 100)::smallint end)

-- rule: memory_percent(h)
-- the memory use of the machine in heartbeat h, limited to 0 to 100 (null: it has no such number)
(case when jsonb_typeof(h.metrics -> 'memory_percent') = 'number'
      then least(greatest((h.metrics ->> 'memory_percent')::numeric, 0), 100)::smallint end)

-- rule: is_in_maintenance(s)
-- the control plane or the cluster of server s is in maintenance, so s gets no new work
((select maintenance_since is not null from liveness_instance)
 or s.cluster in (select of_cluster.cluster from liveness_clustermaintenance of_cluster))

-- rule: maintenances
-- the maintenance in force as JSON (null: none). That of the whole control plane has no cluster and comes first
(select jsonb_agg(to_jsonb(m) order by m.cluster nulls first)
   from (select null as cluster, maintenance_since as since, maintenance_until as until, maintenance_by as by,
                maintenance_note as note
           from liveness_instance where maintenance_since is not null
          union all
         select cluster, since, until, by, note from liveness_clustermaintenance) m)

-- rule: age_of_transaction(x)
-- the minimum age in seconds of transaction x.xid, if its start is not known. It is the age of the first heartbeat of a
-- process of the control plane that was stored after it (null: there is no such heartbeat)
(select extract(epoch from clock_timestamp() - min(h.at))::float8
   from (select h.at, h.xmin from liveness_heartbeat h
          where h.server_id = (
                select s.id from liveness_server s where s.type <> 'WORKER' order by s.last_heartbeat_at desc nulls last limit 1)
          order by h.at desc limit 1000) h
  where age(h.xmin) <= age(x.xid))

-- rule: oldest_snapshot
-- the session, prepared transaction or replication slot that has kept dead rows of this database for longest, as JSON
-- (null: nothing keeps any). VACUUM's own processes do not keep dead rows. Without the role pg_read_all_stats, the
-- times of other roles' sessions cannot be read
(select to_jsonb(x) - 'xid'
   from (select x.kind, x.name, x.pid, x.xid, coalesce(extract(epoch from clock_timestamp() - x.since)::float8, {{age_of_transaction(x)}}, 0) as seconds
           from (select case when a.datid is null then 'standby' else 'session' end as kind, a.application_name as name, a.pid,
                        case when age(a.backend_xid) > age(a.backend_xmin) then a.backend_xid else coalesce(a.backend_xmin, a.backend_xid) end as xid,
                        a.xact_start as since
                   from pg_stat_activity a
                  where (a.datname = current_database() or a.datid is null) and a.pid <> pg_backend_pid()
                    and a.pid not in (select v.pid from pg_stat_progress_vacuum v)
                  union all
                 select 'slot', r.slot_name, r.active_pid, r.xmin, null from pg_replication_slots r
                  union all
                 select 'prepared', p.gid, null, p.transaction, p.prepared
                   from pg_prepared_xacts p where p.database = current_database()) x
          where x.xid is not null
          order by seconds desc limit 1) x)

-- rule: filters
-- the filters that may exclude a server from work, in the order of their checks: filters of the server, then of the job
array['type', 'state', 'freshness', 'cordon', 'maintenance', 'tags', 'refused', 'slots', 'capacity']

-- rule: obstacle_to_work(s)
-- the first filter that excludes server s from all work (null: none)
(case
    when s.type <> 'WORKER' then 'type'
    when s.state <> 'RUNNING' then 'state'
    when not {{is_fresh(s)}} then 'freshness'
    when s.cordoned_by is not null or s.drain_deadline is not null then 'cordon'
    when {{is_in_maintenance(s)}} then 'maintenance'
end)

-- rule: may_get_work(s)
-- server s may get work
({{obstacle_to_work(s)}} is null)

-- rule: grace_of_attempts(s)
-- seconds for which the running attempts of server s stay with it after its loss (infinity: without limit)
(case s.worker_task_restart_strategy
    when 'NEVER' then 'infinity'::float8 when 'IMMEDIATELY' then 0 else s.termination_grace_period
end)

-- rule: given_away_if_silent_at(s)
-- the observed time at which running attempts of server s are recovered, if it was alive at its last heartbeat and
-- sends no more. The fence in the response to that heartbeat was computed from this time
(s.heard_observed + s.timeout + {{grace_of_attempts(s)}})

-- rule: given_away_at(s)
-- the earliest observed time at which running attempts of server s are recovered, if it sends no more heartbeats. This
-- is the only definition of that time: recovery waits for it, and the fence (`fence_after`) ends the code before it. A
-- server that reports its end or ERROR has stopped its code itself
(case
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'::float8
    when s.state in {{ALIVE}} then {{given_away_if_silent_at(s)}}
    when s.state = 'TERMINATED_GRACEFULLY' or {{has_ended(s)}} then s.state_changed_observed
    -- The grace period starts when the server begins to finish its attempts: at TERMINATING, or at its loss.
    when s.state = 'TERMINATING' then greatest({{lost_if_silent_at(s)}}, s.state_changed_observed + {{grace_of_attempts(s)}})
    else {{lost_if_silent_at(s)}} + {{grace_of_attempts(s)}}
end)

-- rule: is_silent(s)
-- alive server s sent no heartbeat for two intervals, by observed time or by wall time. Both times are checked, so that
-- every stale server is silent. No server looks healthy while observed time stands still, or after a clock was set
-- back. Before the first heartbeat of s, the time since its registration counts
(s.state in {{ALIVE}}
 and ((select observed_now()) - s.heard_observed >= s.heartbeat_interval * 2
      or extract(epoch from (select clock_timestamp()) - coalesce(s.last_heartbeat_at, s.created_at))
         >= s.heartbeat_interval * 2))

-- rule: brake_lets_go_at(s)
-- the observed time from which the brake that holds server s releases some servers at each check (null: no brake)
(select min(brake.engaged_observed) + %(brake_max_hold)s from liveness_brake brake where {{holds(brake, s)}})

-- rule: needs_attention(s)
-- server s is silent, lost, or ending but not gracefully
(case when s.state in {{ALIVE}} then s.silent else s.state not in {{ENDED}} end)

-- rule: lost_at(s)
-- the observed time at which server s was or will be lost (null: it is alive). A TERMINATING server is lost when it is
-- silent for its timeout, or after grace period + timeout even if it sends heartbeats. Others are lost at their state change
(case
    when s.state in {{ALIVE}} then null
    when s.state = 'TERMINATING' then least(
        s.heard_observed + s.timeout, s.state_changed_observed + s.termination_grace_period + s.timeout)
    else s.state_changed_observed
end)

-- rule: running_attempts_move_at(s)
-- the observed time at which the running attempts of server s are recovered (null: it is alive)
(case when s.state not in {{ALIVE}} then {{given_away_at(s)}} end)

-- rule: is_timed_out(s)
-- alive server s is silent for longer than its timeout, and not new. Only the reading of the check counts
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed > s.timeout
 and clock.reading - s.created_observed >= %(initial_delay)s)

-- rule: disconnected_at(s)
-- the observed time at which alive server s is DISCONNECTED, unless it sends a heartbeat
greatest(s.heard_observed + s.timeout, s.created_observed + %(initial_delay)s)

-- rule: lost_if_silent_at(s)
-- the observed time at which server s is lost, if it sends no more heartbeats. A server that an operator disconnected
-- may not know that yet. So it is lost no sooner than if it had fallen silent
(case
    when s.state in {{ALIVE}} then s.heard_observed + s.timeout
    when s.state = 'DISCONNECTED' then greatest(s.state_changed_observed, s.heard_observed + s.timeout)
    else {{lost_at(s)}}
end)

-- rule: rows_left_out
-- the latest 5 rows that could not be written within the last hour, as JSON. Each has the total number of such rows
(select jsonb_agg(to_jsonb(lately) || jsonb_build_object('at', to_char(at at time zone 'UTC', 'HH24:MI:SS')) order by at desc)
   from (select l.step, l.row, l.error, l.at, l.times, count(*) over () as count from liveness_leftout l
          where l.at > clock_timestamp() - interval '1 hour' order by l.at desc limit 5) lately)

-- rule: is_own(s)
-- server s is a process of the control plane itself. All others registered with a token of a user, whatever their type
(coalesce(s.token_id = (select t.id from liveness_apitoken t where t.digest = %(own_digest)s), false))

-- rule: is_loss(e)
-- event e is the loss of a server, and not the action of an operator that caused it
(e.to_state in {{LOST}} and e.action = '')

-- rule: own_events(s)
-- the number of events that server s caused itself within the last hour, up to the limit
(select count(*)
   from (select from liveness_serverevent e
          where e.server_id = s.id and e.actor = 'server' and e.at > clock_timestamp() - interval '1 hour'
          order by e.id desc limit {{OWN_EVENTS_LIMIT}}) recent)

-- rule: has_ended(s)
-- server s is retired, or its machine reported its end. It may not report about its attempts any more
(s.state in {{RETIRED}} or s.ended_at is not null)

-- rule: timeline_is_new
-- the database was started, promoted or restored, and one thing is still missing: the comparison of its timeline, the
-- higher attempt counts, or a worker's list of what it runs
(exists (select from liveness_unheardserver)
 or coalesce((select t.raised_at is null or t.compared_with_server <> pg_postmaster_start_time()
                from liveness_databasetimeline t order by t.id desc limit 1), false))
