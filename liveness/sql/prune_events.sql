-- Delete the events of a span that are past their retention, between prune_open and prune_close.
with gone as (
    delete from liveness_serverevent e where e.id > %(after)s and e.id <= %(last)s and e.at < %(events)s
    returning 1
)
select count(*) as deleted from gone
