-- step: clock_of_this_check -> liveness_clock
-- Use the reading at the start of this check instead of the clock table, because the clock may have advanced since.
liveness_clock as (select tick, %(reading)s::float8 as reading from liveness_clock)

-- step: servers_let_go_by_brake -> let_go
-- Select the servers that an old brake releases at this check: the longest silent 10 per cent, and at least one.
-- Servers that other checks released in the same tick are counted too. If two brakes hold a server, the older brake
-- releases it.
let_go as (
    select id from (
        select s.id, row_number() over same_brake as place, count(*) over same_brake_in_all as of_all,
               (select count(*) from liveness_server already_let_go
                 where already_let_go.type = s.type and already_let_go.namespace = s.namespace
                   and holding.cluster in ('', already_let_go.cluster)
                   and already_let_go.disconnected_observed is not null
                   and already_let_go.state = 'DISCONNECTED' and already_let_go.state_changed_tick = clock.tick) as already_let_go
          from liveness_server s
         cross join liveness_clock clock
         cross join lateral (
               select brake.cluster, brake.engaged_observed
                 from liveness_brake brake where {{holds(brake, s)}}
                order by brake.engaged_observed, brake.cluster limit 1) holding
         where {{is_timed_out(s)}}
           and s.type in (select brake.type from liveness_brake brake where brake.released_by is null)
           and holding.engaged_observed + %(brake_max_hold)s <= clock.reading
        window same_brake_in_all as (partition by s.type, s.namespace, holding.cluster),
               same_brake as (same_brake_in_all order by s.heard_observed, s.id)
    ) ranked
     where place + already_let_go <= greatest(1, ceil((of_all + already_let_go) / 10.0))
)

-- step: servers_to_disconnect(let_go) -> silent_servers
-- Select the alive servers that are silent for longer than their timeout, except servers that a brake holds. Race: a
-- concurrent heartbeat always wins. If its transaction still locks the row, the row is skipped. If it has just
-- committed, PostgreSQL checks the condition again on the new row.
silent_servers as (
    select s.id, clock.reading - s.heard_observed as silence
      from liveness_server s, liveness_clock clock
     where {{is_timed_out(s)}}
       -- Subqueries that read the brakes only once, because this condition is checked for up to 100,000 servers.
       and ((s.type, s.namespace) not in (select brake.type, brake.namespace from liveness_brake brake
                                           where brake.released_by is null and brake.cluster = '')
            and (s.type, s.namespace, s.cluster) not in (select brake.type, brake.namespace, brake.cluster
                                                           from liveness_brake brake where brake.released_by is null)
            or s.id in (select id from let_go))
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)

-- statement: advance_clock
-- Start a check: begin a tick and advance observed time. Checks within half an interval share one tick, so that ten
-- checks at once have the effect of one. Observed time advances only if heartbeats could arrive at this check and at
-- the one before. After an outage servers therefore have a whole interval to send a heartbeat before silence counts. It
-- advances by at most `credit`, which the previous check has set. Only heartbeats of the control plane's own processes
-- count as proof.
-- takes: own_digest bytea, window float8, interval numeric
-- returns: tick bigint, earlier float8, reading float8, witnessed bool, set_back_by float8
-- row: AdvancedClock
with witness as (
    select exists (
        select from liveness_server s
         where s.type <> 'WORKER' and {{is_own(s)}}
           and s.witnessed_at <= clock_timestamp()
           and s.witnessed_at > clock_timestamp() - make_interval(secs => %(window)s)) as seen,
           (select clock.reading from liveness_clock clock limit 1) as earlier
)
update liveness_clock c
   set tick = c.tick + 1,
       tick_at = clock_timestamp(),
       reading = c.reading + case when witness.seen and c.witnessed then least(
           greatest(extract(epoch from clock_timestamp() - c.advanced_at), 0), c.credit) else 0 end,
       advanced_at = clock_timestamp(),
       moved_at = case when witness.seen and c.witnessed then clock_timestamp() else c.moved_at end,
       credit = %(interval)s * 1.5,
       witnessed = witness.seen,
       -- If the database's clock was set back, then by at least this difference.
       set_back_by = c.set_back_by + greatest(extract(epoch from c.tick_at - clock_timestamp()), 0)
  from witness
 where abs(extract(epoch from clock_timestamp() - c.tick_at)) >= %(interval)s / 2.0
returning c.tick, witness.earlier, c.reading, c.witnessed, c.set_back_by

-- statement: list_stale_workers
-- List alive workers (or one of them) whose heartbeat is stale, the latest heartbeat first.
-- takes: server uuid, staleness_multiplier float8, limit bigint
-- returns: id uuid, type text, name text, silence float8
-- row: StaleWorker
select s.id, s.type, s.name, (select observed_now()) - s.heard_observed as silence
  from liveness_server s
 where s.state in {{ALIVE}} and s.type = 'WORKER' and s.last_heartbeat_at is not null and not {{is_fresh(s)}}
   and (%(server)s::uuid is null or s.id = %(server)s)
 order by s.heard_observed desc, s.id
 limit %(limit)s

-- statement: list_newly_stale_servers
-- List alive servers whose heartbeat became stale between two readings of observed time.
-- takes: earlier float8, reading float8, staleness_multiplier float8, limit bigint
-- returns: id uuid, type text, name text, silence float8
-- row: StaleServer
select s.id, s.type, s.name, %(reading)s - s.heard_observed as silence
  from liveness_server s
 where s.state in {{ALIVE}} and s.last_heartbeat_at is not null
   and %(reading)s - s.heard_observed >= s.heartbeat_interval * %(staleness_multiplier)s
   and %(earlier)s - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s
 order by s.heard_observed, s.id
 limit %(limit)s

-- statement: read_observed_time
-- Read observed time, and whether the check has anything to do: a server is silent for longer than its timeout, or a
-- brake exists.
-- takes: initial_delay float8
-- returns: reading float8, is_due bool
select clock.reading, exists (select from liveness_brake)
       or exists (select from liveness_server s where {{is_timed_out(s)}}) as is_due
  from liveness_clock clock

-- statement: judge_brake
-- Engage the brake for each server type if too many of its servers would be disconnected at once. End it if they are
-- fewer. Each namespace has its own brakes. Otherwise a token of one namespace could register servers, abandon them,
-- and so prevent the disconnection of dead servers in other namespaces. If a type is not held in all clusters, each of
-- its clusters is checked separately, because the network of one may have failed. The counts include alive servers and
-- those that were disconnected for silence within their last timeout. Servers that fell silent together reach their
-- timeouts one after the other, over more than a heartbeat interval. Once the first has reached its timeout, all silent
-- servers count, so that none is disconnected while too many are silent. Only servers that sent heartbeats for longer
-- than their timeout count. Otherwise servers that were abandoned after their registration would keep a brake engaged.
-- takes: initial_delay float8, staleness_multiplier float8, brake_minimum bigint, brake_share float8
-- returns: type text, namespace text, cluster text, silent int, alive int, is_on bool, changed bool
-- row: JudgedBrake
with counts_by_scope as (
    select s.type, s.namespace, case grouping(s.cluster) when 1 then '' else s.cluster end as cluster,
           count(*) as alive,
           count(*) filter (where s.state not in {{ALIVE}} or {{is_timed_out(s)}} or {{is_falling_silent(s)}}) as silent,
           count(*) filter (where {{is_timed_out(s)}}) as timed_out
      from liveness_server s, liveness_clock clock
     where (s.state in {{ALIVE}} or s.disconnected_observed > clock.reading - s.timeout)
       and s.heard_observed - s.created_observed > s.timeout
     group by grouping sets ((s.type, s.namespace), (s.type, s.namespace, s.cluster))
),
whole_types as (
    select * from counts_by_scope where cluster = ''
),
too_silent as (
    select c.type, c.namespace, c.cluster, c.alive, c.silent from counts_by_scope c
     where c.silent >= %(brake_minimum)s and c.silent >= %(brake_share)s::float8 * c.alive
       and (c.timed_out > 0
            or exists (select from liveness_brake b
                        where b.type = c.type and b.namespace = c.namespace and b.cluster in ('', c.cluster)))
),
scopes_to_hold as (
    select scope.* from too_silent scope
      join whole_types whole using (type, namespace)
     where scope.cluster = ''
           -- Keep the brake of a cluster, with its age and its release, if the whole type falls silent too. Otherwise
           -- the dead servers of the cluster would be held forever by a fleet that falls silent again and again.
        or (exists (select from liveness_brake b
                     where b.type = scope.type and b.namespace = scope.namespace and b.cluster = scope.cluster)
            or not exists (select from too_silent held
                            where held.type = scope.type and held.namespace = scope.namespace and held.cluster = ''))
           -- A type with a single cluster needs only the brake on the whole type.
           and scope.alive < whole.alive
),
ended_brakes as (
    delete from liveness_brake b
     where (b.type, b.namespace, b.cluster) not in (select type, namespace, cluster from scopes_to_hold)
 returning b.type, b.namespace, b.cluster
),
engaged_brakes as (
    insert into liveness_brake as b (type, namespace, cluster, engaged_observed, silent, alive)
    select scope.type, scope.namespace, scope.cluster,
           -- A cluster's brake that continues the brake on the whole type keeps its start time.
           coalesce((select whole.engaged_observed from liveness_brake whole
                      where whole.type = scope.type and whole.namespace = scope.namespace
                        and whole.cluster = '' and scope.cluster <> ''), clock.reading),
           scope.silent, scope.alive
      from scopes_to_hold scope, liveness_clock clock order by scope.type, scope.namespace, scope.cluster
        -- A release applies only to the servers that were silent then. If more servers fall silent, the brake is
        -- engaged again.
        on conflict (type, namespace, cluster) do update
           set silent = excluded.silent, alive = excluded.alive,
               engaged_observed = case when b.released_by is not null and excluded.silent > b.silent
                                       then excluded.engaged_observed else b.engaged_observed end,
               released_by = case when excluded.silent > b.silent then null else b.released_by end
 returning type, namespace, cluster, silent, alive, xmax = 0 as is_new
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_id, subject_name, action, actor, reason)
    select 'brake', {{brake_key(b)}}, {{brake_words(b)}}, 'brake_engaged', 'liveness',
           format('%%s of %%s would be disconnected at once', silent, alive)
      from engaged_brakes b where is_new
    union all
    select 'brake', {{brake_key(b)}}, {{brake_words(b)}}, 'brake_ended', 'liveness', 'fewer are silent' from ended_brakes b
)
select type, namespace, cluster, silent, alive, true as is_on, is_new as changed from engaged_brakes
union all
select type, namespace, cluster, null, null, false, true from ended_brakes

-- statement: disconnect_silent_servers
-- Disconnect the servers that are silent for longer than their timeout.
-- takes: reading float8, initial_delay float8, brake_max_hold float8, only uuid[]
-- returns: id uuid, type text, name text, reason text, silence float8
-- row: DisconnectedServer
with {{clock_of_this_check}},
{{servers_let_go_by_brake}},
{{servers_to_disconnect}},
-- due: select id from silent_servers
disconnected_servers as (
    update liveness_server s
       set state = 'DISCONNECTED',
           disconnected_observed = s.heard_observed + silent_servers.silence,
           state_actor = 'liveness',
           state_reason = format('silent for %%s s, its timeout is %%s s', round(silent_servers.silence::numeric, 1), s.timeout)
      from silent_servers
     where s.id = any(array[silent_servers.id])
 returning s.id, s.type, s.name, s.state_reason as reason, silent_servers.silence as seconds
),
detection_tallies as (
    insert into liveness_tally (name, labels, number)
    select 'detection_seconds', array[{{histogram_bucket}}], count(*) from disconnected_servers group by 2
    union all
    select 'detection_seconds_sum', '{}', sum(seconds) from disconnected_servers having count(*) > 0
)
select id, type, name, reason, seconds as silence from disconnected_servers

-- statement: deactivate_servers
-- Make servers INACTIVE that have been NOT_RUNNING since an earlier check, so that the state was visible for an interval.
-- takes: only uuid[]
-- returns: id uuid, name text, reason text
with servers_to_deactivate as (
    select s.id from liveness_server s, liveness_clock clock
     where s.state = 'NOT_RUNNING' and s.state_changed_tick < clock.tick
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)
-- due: select id from servers_to_deactivate
update liveness_server s
   set state = 'INACTIVE', state_actor = 'liveness', state_reason = 'NOT_RUNNING since an earlier check'
  from servers_to_deactivate
 where s.id = any(array[servers_to_deactivate.id])
returning s.id, s.name, s.state_reason as reason

-- statement: end_expired_maintenance
-- End expired maintenance. An empty cluster stands for the whole control plane.
-- takes: only text[]
-- returns: cluster text
with expired as (
    select due.cluster
      from (select '' as cluster, maintenance_until as until from liveness_instance
             union all
            select cluster, until from liveness_clustermaintenance) due
     where due.until <= clock_timestamp() and (%(only)s::text[] is null or due.cluster = any(%(only)s))
),
-- due: select cluster as id from expired
-- Lock the row of the whole control plane before those of clusters, in the same order as an operator's exit.
ended_of_all as (
    update liveness_instance
       set maintenance_since = null, maintenance_until = null, maintenance_by = '', maintenance_note = '',
           maintenance_ended_observed = observed_now()
     where '' in (select cluster from expired) and maintenance_until <= clock_timestamp()
 returning '' as cluster
),
noted_end_of_clusters as (
    -- This is skipped when rows are retried one by one, so that a cluster's maintenance ends even if this row cannot be
    -- written.
    update liveness_instance
       set maintenance_ended_observed = observed_now()
     where (select min(cluster) from expired) <> '' and %(only)s::text[] is null
 returning null::text as cluster
),
ended_of_clusters as (
    delete from liveness_clustermaintenance
     where cluster in (select cluster from expired) and until <= clock_timestamp() returning cluster
),
ended as (
    select cluster from ended_of_all
     union all
    select cluster from noted_end_of_clusters where cluster is not null
     union all
    select cluster from ended_of_clusters
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_id, subject_name, action, actor, reason)
    select 'instance', cluster, case when cluster <> '' then 'cluster ' || cluster else '' end, 'maintenance_exit', 'liveness', 'it expired' from ended
)
select cluster from ended

-- statement: end_expired_cordons
-- Lift expired cordons and drains.
-- takes: only uuid[]
-- returns: id uuid, name text
-- row: UncordonedServer
with expired_cordons as (
    select s.id, s.drain_deadline is not null as was_draining from liveness_server s
     where s.cordon_until <= clock_timestamp() and s.state in {{ALIVE}}
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
),
-- due: select id from expired_cordons
uncordoned_servers as (
    update liveness_server s
       set cordoned_by = null, cordon_reason = '', cordon_until = null,
           drain_deadline = null, drain_until_observed = null, drain_held = null
      from expired_cordons
     where s.id = any(array[expired_cordons.id])
 returning s.id, s.name, s.state, expired_cordons.was_draining
),
new_events as (
    insert into liveness_serverevent
           (subject_type, subject_id, subject_name, server_id, server_name, from_state, to_state, action, actor, reason)
    select 'server', id::text, name, id, name, state, state, case when was_draining then 'undrain' else 'uncordon' end,
           'liveness', 'it expired'
      from uncordoned_servers
)
select id, name from uncordoned_servers

-- statement: note_check_finished
-- Record that a check succeeded.
-- takes: took float8
-- returns: finished_at timestamptz
update liveness_clock set finished_at = clock_timestamp(), took = %(took)s returning finished_at

-- statement: fold_tallies
-- Merge the rows of each counter into one. Concurrent readers see the sum of the old rows or of the new one.
-- returns: id bigint
with deleted_tallies as (
    delete from liveness_tally
     where id in (select id from liveness_tally order by id limit 100000 for update skip locked)
 returning name, labels, number
)
insert into liveness_tally (name, labels, number)
select name, labels, sum(number) from deleted_tallies group by name, labels
returning id
