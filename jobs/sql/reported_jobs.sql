/* the jobs whose attempts are reported on */
array(select reported.job_id from jobs_attempt reported
       where reported.id = any(%(attempts)s::uuid[]) and reported.server_id = %(server)s)
