-- Engage the brake for each type of which too many would be disconnected at once, and end it where they are fewer.
-- Counted are the alive, the silent among them, and those disconnected for silence within the last timeout. Who fell
-- silent together is overdue one after the other, over a heartbeat interval and more: once the first would go, all that
-- are late count as silent, so that nobody goes while too many are. Only servers that were heard for longer than their
-- timeout count: else whoever may register a few, and leaves them, would keep the dead of others from being disconnected.
with counted as (
    select s.type,
           count(*) as alive,
           count(*) filter (where s.state not in {{ALIVE}} or {{overdue}} or {{falling_silent}}) as silent,
           count(*) filter (where {{overdue}}) as overdue
      from liveness_server s, liveness_clock clock
     where (s.state in {{ALIVE}} or s.disconnected_observed > clock.reading - s.timeout)
       and s.heard_observed - s.created_observed > s.timeout
     group by s.type
),
held as (
    select type, alive, silent from counted
     where silent >= %(brake_minimum)s and silent >= %(brake_share)s * alive
       and (overdue > 0 or type in (select type from liveness_brake))
),
ended as (
    delete from liveness_brake b where b.type not in (select type from held) returning b.type
),
engaged as (
    insert into liveness_brake as b (type, engaged_observed, silent, alive)
    select held.type, clock.reading, held.silent, held.alive from held, liveness_clock clock order by held.type
        -- A release is for those who were silent then: when more are, it is another incident.
        on conflict (type) do update
           set silent = excluded.silent, alive = excluded.alive,
               engaged_observed = case when b.released_by is not null and excluded.silent > b.silent
                                       then excluded.engaged_observed else b.engaged_observed end,
               released_by = case when excluded.silent > b.silent then null else b.released_by end
 returning type, silent, alive, xmax = 0 as is_new
),
noted as (
    insert into liveness_serverevent (server_name, action, actor, reason)
    select type, 'brake_engaged', 'liveness', format('%%s of %%s would be disconnected at once', silent, alive)
      from engaged where is_new
    union all
    select type, 'brake_ended', 'liveness', 'fewer are silent' from ended
)
select type, silent, alive, true as is_on, is_new as changed from engaged
union all
select type, null, null, false, true from ended
