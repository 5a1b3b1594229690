-- statement: move_clock
-- A tick at this moment, after the database was restored: what has passed since the backup is held against nobody. When the
-- clock of the backup was ahead, what waits follows at the next check, as where the clock was set back.
-- returns: tick bigint
update liveness_clock c
   set tick = c.tick + 1, tick_at = clock_timestamp(), advanced_at = clock_timestamp(), moved_at = clock_timestamp(),
       finished_at = null, witnessed = false,
       set_back_by = c.set_back_by + greatest(extract(epoch from c.tick_at - clock_timestamp()), 0)
returning c.tick
