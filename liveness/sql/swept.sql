-- The present tick begins to recover: what is lost by now is recovered by it, and retired by the next.
update liveness_clock set swept_at = clock_timestamp() where swept_at < tick_at
returning swept_at
