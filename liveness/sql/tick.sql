-- A check begins. Checks that begin within half an interval of one another are one tick, and the steps that
-- wait for "the next check" wait for the next tick: ten checks at once do what one does.
update liveness_clock
   set tick_at = clock_timestamp(), last_swept_at = swept_at
 where tick_at < clock_timestamp() - make_interval(secs => %(interval)s / 2)
returning tick_at
