-- statement: move_clock
-- Begin a tick after the database was restored, so that the time since the backup does not count as silence. If the
-- clock of the backup was ahead, the next check corrects stored times as if the clock had been set back.
-- returns: tick bigint
update liveness_clock c
   set tick = c.tick + 1, tick_at = clock_timestamp(), advanced_at = clock_timestamp(), moved_at = clock_timestamp(),
       finished_at = null, witnessed = false,
       set_back_by = c.set_back_by + greatest(extract(epoch from c.tick_at - clock_timestamp()), 0)
returning c.tick
