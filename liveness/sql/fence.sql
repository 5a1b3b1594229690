-- For how long server may go on unheard, in the state that its heartbeat has just taken it to.
select {{fence_after}} as fence_after from liveness_server s where s.id = %(server)s
