/* the last attempt of job j may still run where it was taken from. (A scalar subquery: looked up by index, never joined) */
coalesce((select true from jobs_takenattempt t where t.job_id = j.id and t.had_begun limit 1), false)
