-- rule: is_held_by_brake(s)
-- server s keeps its state though it is silent, for a brake holds its type, or its type in its cluster
(exists (select from liveness_brake brake where {{holds(brake, s)}}))

-- rule: holds(b, s)
-- brake b holds server s
(b.released_by is null and b.type = s.type and b.cluster in ('', s.cluster))

-- rule: brake_key(b)
-- brake b as events and incidents have it
case when b.cluster = '' then b.type else b.type || '/' || b.cluster end

-- rule: brake_words(b)
-- the same as people say it
case when b.cluster = '' then b.type else b.type || ' of cluster ' || b.cluster end

-- rule: histogram_bucket
-- the bucket of a histogram that `seconds` falls in, by its upper bound
coalesce((select min(le) from unnest(array{{BUCKETS}}) le
           where seconds <= le)::text, '+Inf')

-- rule: check_age
-- for how many seconds no liveness check has gone through (null: none ever did)
(select extract(epoch from clock_timestamp() - clock.finished_at)::float8 from liveness_clock clock)

-- rule: is_falling_silent(s)
-- alive server s was not heard in time by the reading of the check, and would be disconnected within one timeout
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed
     >= least(s.heartbeat_interval * %(staleness_multiplier)s, s.timeout - s.heartbeat_interval)
 and {{disconnected_at(s)}} <= clock.reading + s.timeout)

-- rule: fence_after(s)
-- seconds after its last heartbeat at which server s stops its jobs' code by itself: 20 per cent of its timeout before
-- they could be given away (null: never)
(case when s.worker_task_restart_strategy <> 'NEVER' then
    -- Of times in the thousands floats leave a trace of the sum.
    round(greatest({{given_away_at(s)}} - s.heard_observed - s.timeout * {{FENCE_MARGIN}}, 0)::numeric, 3)::float8
end)

-- rule: is_fresh(s)
-- server s was heard in time to be given work: exactly at the limit is stale, and no heartbeat yet is stale. By observed
-- time: an outage of the control plane makes nobody stale
(s.last_heartbeat_at is not null
 and (select observed_now()) - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s)

-- rule: heard_now(s)
-- observed time as server s is heard at this moment: a check that does not count takes back what was observed since the
-- one before, and what is heard of a server, or of code on it, is never before what was heard already
greatest(s.heard_observed, observed_now())

-- rule: is_in_maintenance(s)
-- server s gets no new work: the control plane is in maintenance, or its cluster is
((select maintenance_since is not null from liveness_instance)
 or s.cluster in (select of_cluster.cluster from liveness_clustermaintenance of_cluster))

-- rule: maintenances
-- what maintenance is in force, that of the whole control plane, which has no cluster, first (null: none)
(select jsonb_agg(to_jsonb(m) order by m.cluster nulls first)
   from (select null as cluster, maintenance_since as since, maintenance_until as until, maintenance_by as by,
                maintenance_note as note
           from liveness_instance where maintenance_since is not null
          union all
         select cluster, since, until, by, note from liveness_clustermaintenance) m)

-- rule: filters
-- what may keep a server from work, in the order in which a refusal names it: the server itself, then a job
array['type', 'state', 'freshness', 'cordon', 'maintenance', 'tags', 'refused', 'capacity']

-- rule: obstacle_to_work(s)
-- the first filter that keeps server s from any work (null: none)
(case
    when s.type <> 'WORKER' then 'type'
    when s.state <> 'RUNNING' then 'state'
    when not {{is_fresh(s)}} then 'freshness'
    when s.cordoned_by is not null or s.drain_deadline is not null then 'cordon'
    when {{is_in_maintenance(s)}} then 'maintenance'
end)

-- rule: may_get_work(s)
-- server s may be given work
({{obstacle_to_work(s)}} is null)

-- rule: grace_of_attempts(s)
-- seconds for which the running attempts of server s are left with it once it is lost (infinity: for good)
(case s.worker_task_restart_strategy
    when 'NEVER' then 'infinity'::float8 when 'IMMEDIATELY' then 0 else s.termination_grace_period
end)

-- rule: given_away_if_silent_at(s)
-- the observed time at which what runs on server s is given to another, if it was alive when it was last heard and is not
-- heard any more: by this its last heartbeat was answered its fence
(s.heard_observed + s.timeout + {{grace_of_attempts(s)}})

-- rule: given_away_at(s)
-- the earliest observed time at which what runs on server s is given to another, if s is not heard any more: the one
-- home of that rule. Recovery waits for it, and the fence (`fence_after`) ends the code before. A server that ended,
-- or failed, has stopped its code itself
(case
    when s.worker_task_restart_strategy = 'NEVER' then 'infinity'::float8
    when s.state in {{ALIVE}} then {{given_away_if_silent_at(s)}}
    when s.state = 'TERMINATED_GRACEFULLY' or s.state in {{RETIRED}} then s.state_changed_observed
    -- The grace period counts from the state in which it can finish what it holds: from TERMINATING, or from its loss.
    when s.state = 'TERMINATING' then greatest({{lost_if_silent_at(s)}}, s.state_changed_observed + {{grace_of_attempts(s)}})
    else {{lost_if_silent_at(s)}} + {{grace_of_attempts(s)}}
end)

-- rule: is_silent(s)
-- alive server s was not heard for two intervals, by observed time or by the clock on the wall. By both, so that every
-- stale server is silent, and none looks healthy while observed time stands still or after a clock was set back. A server
-- that was never heard counts from its registration
(s.state in {{ALIVE}}
 and ((select observed_now()) - s.heard_observed >= s.heartbeat_interval * 2
      or extract(epoch from (select clock_timestamp()) - coalesce(s.last_heartbeat_at, s.created_at))
         >= s.heartbeat_interval * 2))

-- rule: brake_lets_go_at(s)
-- the observed time from which the brake on the type of server s lets some go at each check (null: no brake holds it)
(select min(brake.engaged_observed) + %(brake_max_hold)s from liveness_brake brake where {{holds(brake, s)}})

-- rule: needs_attention(s)
-- something is wrong with server s: it is silent, or on its way out otherwise than well
(case when s.state in {{ALIVE}} then s.silent else s.state not in {{ENDED}} end)

-- rule: lost_at(s)
-- the observed time at which server s was lost (null: it is not in a state that can be): at once when it says so
-- itself, a TERMINATING one when it falls silent for its timeout, or outstays grace + timeout though it beats
(case
    when s.state in {{ALIVE}} then null
    when s.state = 'TERMINATING' then least(
        s.heard_observed + s.timeout, s.state_changed_observed + s.termination_grace_period + s.timeout)
    else s.state_changed_observed
end)

-- rule: running_attempts_move_at(s)
-- the observed time at which the running attempts of server s are given away (null: it is not lost)
(case when s.state not in {{ALIVE}} then {{given_away_at(s)}} end)

-- rule: is_overdue(s)
-- alive server s is silent for longer than its timeout, and not new: by the reading of the check alone
(s.state in {{ALIVE}}
 and clock.reading - s.heard_observed > s.timeout
 and clock.reading - s.created_observed >= %(initial_delay)s)

-- rule: disconnected_at(s)
-- the observed time at which alive server s is DISCONNECTED, unless it is heard
greatest(s.heard_observed + s.timeout, s.created_observed + %(initial_delay)s)

-- rule: lost_if_silent_at(s)
-- the observed time at which server s is lost, if it is not heard any more. A DISCONNECTED one may not know yet: no
-- operator's word is quicker than silence
(case
    when s.state in {{ALIVE}} then s.heard_observed + s.timeout
    when s.state = 'DISCONNECTED' then greatest(s.state_changed_observed, s.heard_observed + s.timeout)
    else {{lost_at(s)}}
end)

-- rule: rows_left_out
-- rows that could not be written within the last hour: the latest few, each with how many there are
(select jsonb_agg(to_jsonb(lately) || jsonb_build_object('at', to_char(at at time zone 'UTC', 'HH24:MI:SS')) order by at desc)
   from (select l.step, l.row, l.error, l.at, l.times, count(*) over () as count from liveness_leftout l
          where l.at > clock_timestamp() - interval '1 hour' order by l.at desc limit 5) lately)

-- rule: heartbeat_is_past_retention(h)
-- whether heartbeat h is past its retention: its server's, or its attempt's
(h.at < case h.role when 'server' then %(servers)s::timestamptz else %(attempts)s::timestamptz end)

-- rule: is_own(s)
-- server s is a process of the control plane itself; all others registered with a token, whatever type they say
(coalesce(s.token_id = (select t.id from liveness_apitoken t where t.digest = %(own_digest)s), false))

-- rule: is_loss(e)
-- event e is the loss of a server, not the action of an operator that led to it
(e.to_state in {{LOST}} and e.action = '')
