/* for how many seconds no liveness check has gone through (null: none ever did) */
(select extract(epoch from clock_timestamp() - clock.finished_at)::float8 from liveness_clock clock)
