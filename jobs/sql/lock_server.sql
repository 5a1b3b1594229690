-- Claims of one server go one by one, and its state and capacity stand still meanwhile.
select s.id from liveness_server s where s.id = %(server)s for no key update
