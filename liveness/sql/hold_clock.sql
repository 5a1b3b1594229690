-- The reading stands still for this transaction: the check that would advance it waits.
select reading from liveness_clock for share
