/* how many attempts server s holds */
(select count(*) from jobs_attempt a where a.server_id = s.id and a.state in {{LIVE}})
