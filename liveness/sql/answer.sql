-- What a server that ended is answered: it moves no clock, and what ran on it has stopped.
select s.*, 0::float8 as fence_after from liveness_server s where s.id = %(server)s
