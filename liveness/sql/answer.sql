-- What a server that ended is answered: it moves no clock.
select s.*, {{fence_after}} as fence_after from liveness_server s where s.id = %(server)s
