-- A check went through.
update liveness_clock set finished_at = clock_timestamp() returning finished_at
