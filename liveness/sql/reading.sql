-- Observed time, as the last check that advanced it left it.
select reading from liveness_clock
