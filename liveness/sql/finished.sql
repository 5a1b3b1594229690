-- A check went through.
update liveness_clock set finished_at = clock_timestamp(), took = %(took)s returning finished_at
