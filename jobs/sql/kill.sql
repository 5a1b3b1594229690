-- step: jobs_to_kill -> jobs_to_kill
-- List the jobs that wait or run and that a hold of `kind` and `value` would cover, in the namespaces of the caller (null:
-- all). `namespace` limits it to work of this namespace. Jobs after the job `until` (null: none) are left out.
jobs_to_kill as (
    select j.id, j.state
      from (select %(kind)s::text as kind, %(value)s::text as value, %(namespace)s::text as namespace) hold
     cross join lateral (
           select * from jobs_workerjob j
            where (j.state = 'PENDING' or j.state in {{LIVE}} and j.attempt_id is not null)
              and {{is_in_namespaces(j)}} and (%(until)s::uuid is null or j.id <= %(until)s::uuid) offset 0) j
     where {{covers_set(hold, j)}} or {{covers_content(hold, j)}}
)

-- statement: count_jobs_to_kill
-- Count the jobs that a hold and a cancellation would end, and return the newest of them.
-- takes: kind text, value text, namespace text, namespaces text[], until uuid
-- returns: waiting bigint, running bigint, newest uuid|null
-- row: JobsToKill
with {{jobs_to_kill}}
select count(*) filter (where state = 'PENDING') as waiting, count(*) filter (where state <> 'PENDING') as running,
       (select id from jobs_to_kill order by id desc limit 1) as newest
  from jobs_to_kill

-- statement: list_jobs_to_kill
-- List the jobs that a cancellation ends after a hold began, oldest first.
-- takes: kind text, value text, namespace text, namespaces text[], until uuid, most bigint
-- returns: id uuid
with {{jobs_to_kill}}
select id from jobs_to_kill order by id limit %(most)s
