/* the same call has moved job j before: whoever lost its answer makes it again */
(%(key)s::text is not null and exists (
    select from jobs_attempt m
     where m.job_id = j.id and m.state in {{INTERRUPTED}} and m.ended_by = %(actor)s and m.error ->> 'key' = %(key)s))
