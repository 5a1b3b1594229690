-- Delete the servers of a span that are past their retention and to which no attempt refers. One that is being
-- reactivated is left alone.
with gone as (
    delete from liveness_server where id = any(array(
        select s.id from liveness_server s
         where s.id > %(after)s and s.id <= %(last)s and {{prune_server_old}}
           and (select a.id from jobs_attempt a where a.server_id = s.id limit 1) is null
         order by s.id
           for update of s skip locked))
    returning 1
)
select count(*) as deleted from gone
