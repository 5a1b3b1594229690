-- Delete the heartbeats of a span that are past their retention. Nobody else ever touches them again.
with gone as (
    delete from liveness_heartbeat h where h.id > %(after)s and h.id <= %(last)s and {{prune_heartbeat_old}}
    returning 1
)
select count(*) as deleted from gone
