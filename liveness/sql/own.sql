/* server s is a process of the control plane itself; all others registered with a token, whatever type they say */
(coalesce(s.token_id = (select t.id from liveness_apitoken t where t.digest = %(own_digest)s), false))
