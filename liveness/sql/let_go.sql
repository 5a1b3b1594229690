-- Of a type whose brake has held for its longest: the 10 per cent, at least one, that were silent longest. What other
-- checks of the same tick have let go is counted in.
let_go as (
    select id from (
        select s.id, row_number() over same_type as place, count(*) over (partition by s.type) as of_all,
               (select count(*) from liveness_server gone
                 where gone.type = s.type and gone.disconnected_observed is not null
                   and gone.state = 'DISCONNECTED' and gone.state_changed_tick = clock.tick) as gone
          from liveness_server s, liveness_clock clock
         where {{overdue}}
           and s.type in (select brake.type from liveness_brake brake
                           where brake.released_by is null
                             and brake.engaged_observed + %(brake_max_hold)s <= clock.reading)
        window same_type as (partition by s.type order by s.heard_observed, s.id)
    ) ranked
     where place + gone <= greatest(1, ceil((of_all + gone) / 10.0))
)
