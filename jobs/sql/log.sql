-- Lines that the code of running attempts wrote, in order; their jobs are held by report_jobs.sql. The last line of an
-- attempt knows how many there are and which report came last, so nothing is ever counted.
with said as (
    select * from jsonb_to_recordset(%(logs)s::jsonb)
        as r(place int, attempt uuid, stream text, sequence int, lines jsonb)
),
known as materialized (
    select a.id, coalesce(last.number, 0) as number, last.sequence
      from jobs_attempt a
      left join lateral (
           select l.number, l.sequence from jobs_logline l where l.attempt_id = a.id order by l.id desc limit 1
           ) last on true,
           jobs_workerjob j, liveness_server s
     where a.id in (select attempt from said) and {{fence}} and a.state = 'RUNNING'
),
numbered as (
    select said.*, known.number,
           greatest(known.sequence, max(said.sequence) over (
               partition by said.attempt order by said.place
                rows between unbounded preceding and 1 preceding)) as last
      from said join known on known.id = said.attempt
),
fresh as (
    select place, attempt, stream, lines, number, greatest(last, sequence) as sequence
      from numbered
     where sequence is null or last is null or sequence > last
),
line as (
    select fresh.attempt, fresh.stream, fresh.sequence, written.line,
           fresh.number + row_number() over (
               partition by fresh.attempt order by fresh.place, written.nth) as number
      from fresh cross join lateral jsonb_array_elements_text(fresh.lines) with ordinality as written(line, nth)
),
stored as (
    insert into jobs_logline (attempt_id, stream, sequence, number, line)
    select attempt, stream, sequence, number,
           case when number > %(lines_kept)s then '… further lines are not kept' else line end
      from line
     where number <= %(lines_kept)s + 1
     order by attempt, number
)
select place, 'RUNNING' as state from fresh
