-- statement: lock_jobs_of_superseded_reports
-- Lock the jobs of attempts with superseded reports before `store_superseded_reports`, in the same round trip. The
-- second statement then sees the reports that another transaction has just stored.
-- takes: attempts uuid[], server uuid
-- returns: id uuid
select j.id from jobs_workerjob j where j.id = any({{reported_jobs}}) order by j.id for no key update

-- statement: store_superseded_reports
-- Store superseded reports: the same one once, and at most `kept` of an attempt. The last stored one is marked with
-- `more` if further ones came. Called after `lock_jobs_of_superseded_reports`.
-- takes: reports jsonb, kept bigint
-- returns: id bigint
with superseded as (
    select a.job_id, r.attempt, r.event, r.reason, r.body, decode(r.digest, 'hex') as digest, r.place
      from rows from (jsonb_to_recordset(%(reports)s::jsonb)
                      as (attempt uuid, event text, reason text, body jsonb, digest text))
           with ordinality as r(attempt, event, reason, body, digest, place)
     cross join lateral (select job_id from jobs_attempt where id = r.attempt offset 0) a
),
fresh as (
    select distinct on (attempt, digest) * from superseded
     where not exists (
           select from jobs_latereport l where l.attempt_id = superseded.attempt and l.digest = superseded.digest)
     order by attempt, digest, place
),
numbered as (
    select fresh.*, row_number() over (partition by attempt order by place)
           + (select count(*) from jobs_latereport l where l.attempt_id = fresh.attempt) as number
      from fresh
),
kept as (
    insert into jobs_latereport (job_id, attempt_id, event, reason, body, digest, more)
    select job_id, attempt, event, reason, body, digest,
           number = %(kept)s and attempt in (select attempt from numbered where number > %(kept)s)
      from numbered
     where number <= %(kept)s
     order by place
 returning id
),
marked as (
    update jobs_latereport l set more = true
     where not l.more
       and l.id in (select (select max(id) from jobs_latereport where attempt_id = numbered.attempt)
                      from numbered where number = %(kept)s + 1)
       -- Rows that are inserted above are not visible here. So this marks attempts that already had `kept` reports.
       and (select count(*) from jobs_latereport before where before.attempt_id = l.attempt_id) >= %(kept)s
),
counted as (
    insert into liveness_tally (name, number) select 'late_reports', count(*) from kept having count(*) > 0
)
select id from kept
