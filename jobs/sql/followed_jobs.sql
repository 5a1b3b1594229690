-- prepared statement: list_changed_jobs
-- List the places of the followed jobs that have ended, have been deleted, or have a log line after the line `after`.
-- With a number in `attempts`, only this attempt of the job counts. Called by the thread that serves long polls.
-- takes: jobs uuid[], after bigint[], attempts int[]
-- returns: place bigint
-- row: ChangedJob
select followed.place
  from unnest(%(jobs)s::uuid[], %(after)s::bigint[], %(attempts)s::int[]) with ordinality
       followed (job, after, attempt, place)
  left join jobs_workerjob j on j.id = followed.job
 where j.id is null
    or j.state in {{TERMINAL}}
    or exists (
       select from jobs_attempt a
        where a.job_id = followed.job and a.number = followed.attempt and a.finished_at is not null)
    or exists (
       select from jobs_attempt a
         join lateral (select from jobs_logline l where l.attempt_id = a.id and l.id > followed.after limit 1) l on true
        where a.job_id = followed.job and (followed.attempt is null or a.number = followed.attempt))
