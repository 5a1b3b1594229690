-- step: clock_of_this_check -> liveness_clock
-- the clock as it stood when a check began to judge, in place of the table: it may have advanced since
liveness_clock as (select tick, %(reading)s::float8 as reading from liveness_clock)

-- step: servers_let_go_by_brake -> let_go
-- Of those that a brake has held for its longest: the 10 per cent, at least one, that were silent longest. What other
-- checks of the same tick have let go is counted in. Where two brakes hold a server, the one that has held it for longer lets it go.
let_go as (
    select id from (
        select s.id, row_number() over same_brake as place, count(*) over (partition by s.type, holding.cluster) as of_all,
               (select count(*) from liveness_server already_let_go
                 where already_let_go.type = s.type and holding.cluster in ('', already_let_go.cluster)
                   and already_let_go.disconnected_observed is not null
                   and already_let_go.state = 'DISCONNECTED' and already_let_go.state_changed_tick = clock.tick) as already_let_go
          from liveness_server s
         cross join liveness_clock clock
         cross join lateral (
               select brake.cluster, brake.engaged_observed
                 from liveness_brake brake where {{holds(brake, s)}}
                order by brake.engaged_observed, brake.cluster limit 1) holding
         where {{is_overdue(s)}}
           and s.type in (select brake.type from liveness_brake brake where brake.released_by is null)
           and holding.engaged_observed + %(brake_max_hold)s <= clock.reading
        window same_brake as (partition by s.type, holding.cluster order by s.heard_observed, s.id)
    ) ranked
     where place + already_let_go <= greatest(1, ceil((of_all + already_let_go) / 10.0))
)

-- step: servers_to_disconnect(let_go) -> silent_servers
-- Alive servers that were silent for longer than their own timeout, but for those the brake holds.
-- A heartbeat that holds its row is skipped; one that has just committed fails the condition, which is
-- judged again on the row as it is then. Either way the heartbeat wins.
silent_servers as (
    select s.id, clock.reading - s.heard_observed as silence
      from liveness_server s, liveness_clock clock
     where {{is_overdue(s)}}
       -- The brakes are read once: this is judged for each of a hundred thousand.
       and (s.type <> all (array(select brake.type from liveness_brake brake
                                  where brake.released_by is null and brake.cluster = ''))
            and (s.type, s.cluster) not in (select brake.type, brake.cluster from liveness_brake brake
                                             where brake.released_by is null)
            or s.id in (select id from let_go))
       and (%(only)s::uuid[] is null or s.id = any(%(only)s))
     order by s.id
       for no key update of s skip locked
)

-- statement: advance_clock
-- A check begins: observed time advances. Checks that begin within half an interval of one another are one tick, and
-- what waits for "the next check" waits for the next tick: ten checks at once do what one does.
-- Time counts only if heartbeats could get in at this check and at the one before: after an outage the servers have a
-- whole interval to come back before anything is held against them. It advances by no more than the heartbeats since
-- were credited, which is `credit`, whatever the interval is by now. Only our own processes are believed.
-- takes: own_digest bytea, window float8, interval numeric
-- returns: tick bigint, reading float8, witnessed bool, set_back_by float8
-- row: AdvancedClock
with witness as (
    select exists (
        select from liveness_server s
         where s.type <> 'WORKER' and {{is_own(s)}}
           and s.witnessed_at <= clock_timestamp()
           and s.witnessed_at > clock_timestamp() - make_interval(secs => %(window)s)) as seen
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
       -- The database's clock may have been set back, by that and by what had passed since the tick before.
       set_back_by = c.set_back_by + greatest(extract(epoch from c.tick_at - clock_timestamp()), 0)
  from witness
 where abs(extract(epoch from clock_timestamp() - c.tick_at)) >= %(interval)s / 2.0
returning c.tick, c.reading, c.witnessed, c.set_back_by

-- statement: read_observed_time
-- Observed time, as the last check that advanced it left it; and whether anybody is overdue by it, or held by a brake: of
-- a hundred thousand servers that are all heard nothing more is asked.
-- takes: initial_delay float8
-- returns: reading float8, is_due bool
select clock.reading, exists (select from liveness_brake)
       or exists (select from liveness_server s where {{is_overdue(s)}}) as is_due
  from liveness_clock clock

-- statement: judge_brake
-- Engage the brake for each type of which too many would be disconnected at once, and end it where they are fewer. Where
-- a type is not held as a whole, so is each cluster of it by itself: of a network that fails others need not be behind.
-- Counted are the alive, the silent among them, and those disconnected for silence within the last timeout. Who fell
-- silent together is overdue one after the other, over a heartbeat interval and more: once the first would go, all that
-- are silent count, so that nobody goes while too many are. Only servers that were heard for longer than their
-- timeout count: else whoever may register a few, and leaves them, would keep the dead of others from being disconnected.
-- takes: initial_delay float8, staleness_multiplier float8, brake_minimum bigint, brake_share bigint
-- returns: type text, cluster text, silent int, alive int, is_on bool, changed bool
-- row: JudgedBrake
with counts_by_scope as (
    select s.type, case grouping(s.cluster) when 1 then '' else s.cluster end as cluster,
           count(*) as alive,
           count(*) filter (where s.state not in {{ALIVE}} or {{is_overdue(s)}} or {{is_falling_silent(s)}}) as silent,
           count(*) filter (where {{is_overdue(s)}}) as overdue
      from liveness_server s, liveness_clock clock
     where (s.state in {{ALIVE}} or s.disconnected_observed > clock.reading - s.timeout)
       and s.heard_observed - s.created_observed > s.timeout
     group by grouping sets ((s.type), (s.type, s.cluster))
),
too_silent as (
    select c.type, c.cluster, c.alive, c.silent from counts_by_scope c
     where c.silent >= %(brake_minimum)s and c.silent >= %(brake_share)s * c.alive
       and (c.overdue > 0
            or exists (select from liveness_brake b where b.type = c.type and b.cluster in ('', c.cluster)))
),
scopes_to_hold as (
    select * from too_silent scope
     where scope.cluster = ''
           -- Its brake stays, and with it since when it has held and whether it is released, when all fall silent as well:
           -- else a fleet that does so time and again would keep the dead of a cluster for ever.
        or (exists (select from liveness_brake b where b.type = scope.type and b.cluster = scope.cluster)
            or not exists (select from too_silent whole where whole.type = scope.type and whole.cluster = ''))
           -- The one cluster of a type is all of it.
           and scope.alive < (select whole.alive from counts_by_scope whole where whole.type = scope.type and whole.cluster = '')
),
ended_brakes as (
    delete from liveness_brake b
     where (b.type, b.cluster) not in (select type, cluster from scopes_to_hold) returning b.type, b.cluster
),
engaged_brakes as (
    insert into liveness_brake as b (type, cluster, engaged_observed, silent, alive)
    select scope.type, scope.cluster,
           -- What a cluster is left with of the brake on its type has been held since then.
           coalesce((select whole.engaged_observed from liveness_brake whole
                      where whole.type = scope.type and whole.cluster = '' and scope.cluster <> ''), clock.reading),
           scope.silent, scope.alive
      from scopes_to_hold scope, liveness_clock clock order by scope.type, scope.cluster
        -- A release is for those who were silent then: when more are, it is another incident.
        on conflict (type, cluster) do update
           set silent = excluded.silent, alive = excluded.alive,
               engaged_observed = case when b.released_by is not null and excluded.silent > b.silent
                                       then excluded.engaged_observed else b.engaged_observed end,
               released_by = case when excluded.silent > b.silent then null else b.released_by end
 returning type, cluster, silent, alive, xmax = 0 as is_new
),
new_events as (
    insert into liveness_serverevent (subject_type, subject_id, subject_name, action, actor, reason)
    select 'brake', {{brake_key(b)}}, {{brake_words(b)}}, 'brake_engaged', 'liveness',
           format('%%s of %%s would be disconnected at once', silent, alive)
      from engaged_brakes b where is_new
    union all
    select 'brake', {{brake_key(b)}}, {{brake_words(b)}}, 'brake_ended', 'liveness', 'fewer are silent' from ended_brakes b
)
select type, cluster, silent, alive, true as is_on, is_new as changed from engaged_brakes
union all
select type, cluster, null, null, false, true from ended_brakes

-- statement: disconnect_silent_servers
-- The silent become DISCONNECTED.
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
-- What was seen NOT_RUNNING becomes INACTIVE.
-- NOT_RUNNING since an earlier check: it was to be seen for one interval.
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
-- Maintenance that was to last until now ends. The cluster is empty where it was that of the whole control plane.
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
-- The row of the whole control plane before those of clusters, as an operator's end has it.
ended_of_all as (
    update liveness_instance
       set maintenance_since = null, maintenance_until = null, maintenance_by = '', maintenance_note = '',
           maintenance_ended_observed = observed_now()
     where '' in (select cluster from expired) and maintenance_until <= clock_timestamp()
 returning '' as cluster
),
noted_end_of_clusters as (
    -- Not where they are tried for themselves: they end though this row cannot be written.
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
    select 'instance', cluster, case when cluster <> '' then 'cluster ' || cluster else '' end, 'maintenance_exit', 'liveness', 'its time was over' from ended
)
select cluster from ended

-- statement: end_expired_cordons
-- Servers that were cordoned, or drained, until now get work again.
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
           'liveness', 'its time was over'
      from uncordoned_servers
)
select id, name from uncordoned_servers

-- statement: note_check_finished
-- A check went through.
-- takes: took float8
-- returns: finished_at timestamptz
update liveness_clock set finished_at = clock_timestamp(), took = %(took)s returning finished_at

-- statement: fold_tallies
-- What was counted since becomes one row for each counter. Who reads meanwhile sees all of it before or after.
-- returns: id bigint
with deleted_tallies as (
    delete from liveness_tally
     where id in (select id from liveness_tally order by id limit 100000 for update skip locked)
 returning name, labels, number
)
insert into liveness_tally (name, labels, number)
select name, labels, sum(number) from deleted_tallies group by name, labels
returning id
