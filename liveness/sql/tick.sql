-- A check begins: observed time advances. Checks that begin within half an interval of one another are one tick, and
-- what waits for "the next check" waits for the next tick: ten checks at once do what one does.
-- Time counts only if heartbeats could get in at this check and at the one before: after an outage the servers have a
-- whole interval to come back before anything is held against them. It advances by no more than the heartbeats since
-- were credited, which is `credit`, whatever the interval is by now. Only our own processes are believed.
with witness as (
    select exists (
        select from liveness_server s
         where {{own}}
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
