/* attempt a of job j is still the caller's, server s, to speak of. (The jobs by their keys: where statistics know of no
   rows yet, PostgreSQL would rather read all) */
(a.server_id = %(server)s and s.id = a.server_id and s.token_version = %(version)s and s.state not in {{GONE}}
 and j.id = a.job_id and j.attempt_id = a.id and j.id = any({{reported_jobs}}))
