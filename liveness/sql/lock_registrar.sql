-- Those who register with a token that is bound to a number of servers count them one after the other.
select t.id from liveness_apitoken t where t.digest = %(digest)s and t.max_servers is not null for no key update
