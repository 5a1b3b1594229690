-- statement: read_end_of_count
-- Return the moment up to which `count_ends` counts. It is read before the counting transaction has its number (xid).
-- returns: now timestamptz
-- row: EndOfCount
select clock_timestamp() as now

-- statement: lock_history
-- Lock the watermark, and return the number of this transaction. Return no row if another process is counting.
-- `count_ends` is a separate statement, so that its snapshot is taken after the lock.
-- returns: xid bigint
-- row: HistoryLock
with first_watermark as (
    insert into jobs_historywatermark (id) select 1 where not exists (select from jobs_historywatermark)
        on conflict do nothing
 returning id
)
select pg_current_xact_id()::text::bigint as xid from first_watermark
 union all
select pg_current_xact_id()::text::bigint as xid
  from (select id from jobs_historywatermark for no key update skip locked) watermark

-- statement: count_ends
-- Count the jobs that ended since the last final minute, and replace the earlier counts of these minutes. Called under
-- `lock_history`. A minute becomes final only when no open transaction can still end a job in it:
-- 1. A transaction that ends a job gets its number before it reads the clock for `finished_at`, because it has already
--    locked the job's row. `margin` covers the few microseconds in which this is not true.
-- 2. This count gets its number after it has read `now`.
-- 3. So the next count, once all transactions with lower numbers have ended, sees every job that ended before `now`.
--    After that count these minutes are final.
-- Minutes older than `settled` seconds are final at once, because no transaction of ours is open for so long. Catching
-- up takes `hours` hours at a time and needs no wait.
-- takes: now timestamptz, xid bigint, margin float8, hours int, first_hours int, settled float8
-- returns: since timestamptz, is_up_to_date bool, rows int
-- row: CountedHistory
with moment as materialized (
    select %(now)s::timestamptz as now, w.counted_until,
           -- If the clock was set back, recent minutes are opened again, because jobs now end in them.
           least(w.closed_until, case when %(now)s < w.counted_until
                                      then date_trunc('minute', %(now)s - interval '10 minutes', 'UTC') end) as closed_until,
           %(now)s >= w.counted_until
           and w.counted_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint as sees_all_counted
      from jobs_historywatermark w
),
stretch_begin as materialized (
    select moment.*,
           coalesce(closed_until, date_trunc('hour', now, 'UTC') - make_interval(hours => %(first_hours)s)) as since
      from moment
),
stretch as materialized (
    select stretch_begin.*,
           case when now > since + make_interval(hours => %(hours)s, secs => %(settled)s)
                then since + make_interval(hours => %(hours)s) else now end as until
      from stretch_begin
),
ended as materialized (
    select date_trunc('minute', j.finished_at, 'UTC') as at, j.state, j.required_tags, {{action_name(j)}} as action, s.cluster,
           case when waiting.seconds >= 0 then {{duration_bin(waiting)}} end as waited,
           case when running.seconds >= 0 then {{duration_bin(running)}} end as took
      from stretch
     cross join lateral (
           select * from jobs_workerjob j
            where j.finished_at >= stretch.since and j.finished_at <= stretch.until and not j.is_kept offset 0
           ) j
      left join lateral (
           select * from jobs_attempt a where a.job_id = j.id order by a.number desc limit 1
           ) a on true
      left join liveness_server s on s.id = a.server_id
      left join lateral (
           select p.finished_at from jobs_attempt p where a.number > 1 and p.job_id = j.id and p.number = a.number - 1
           ) previous on true
     -- The last wait of the job, from the moment when a worker could have claimed it.
     cross join lateral (
           select extract(epoch from a.claimed_at - greatest(j.available_at, previous.finished_at)) as seconds
           ) waiting
     cross join lateral (select extract(epoch from a.finished_at - a.started_at) as seconds) running
),
cells as (
    select at, '' as dimension, '' as key, state, waited, took, count(*) as jobs from ended group by 1, 2, 3, 4, 5, 6
    union all
    select at, 'action', action, state, waited, took, count(*) from ended group by 1, 2, 3, 4, 5, 6
    union all
    select at, 'tag', tag, state, waited, took, count(*)
      from ended cross join unnest(required_tags) tag where tag <> '' group by 1, 2, 3, 4, 5, 6
    union all
    select at, 'cluster', cluster, state, waited, took, count(*)
      from ended where cluster is not null group by 1, 2, 3, 4, 5, 6
),
ranks as (
    select at, dimension, key, row_number() over (partition by at, dimension order by sum(jobs) desc, key) as rank
      from cells group by at, dimension, key
),
kept as materialized (
    select at, dimension, case when rank <= {{KEYS_KEPT}} then key else '' end as key, state, waited, took, jobs
      from cells join ranks using (at, dimension, key)
),
ends as (
    select at, dimension, key,
           coalesce(sum(jobs) filter (where state = 'COMPLETED'), 0) as completed,
           coalesce(sum(jobs) filter (where state = 'FAILED'), 0) as failed,
           coalesce(sum(jobs) filter (where state = 'CANCELLED'), 0) as cancelled,
           coalesce(sum(jobs) filter (where state = 'EXPIRED'), 0) as expired,
           coalesce(sum(jobs) filter (where state = 'SKIPPED'), 0) as skipped
      from kept group by at, dimension, key
),
waits as (
    select at, dimension, key, jsonb_object_agg(waited, jobs) as waited
      from (select at, dimension, key, waited, sum(jobs) as jobs
              from kept where waited is not null group by 1, 2, 3, 4) binned
     group by at, dimension, key
),
runs as (
    select at, dimension, key, jsonb_object_agg(took, jobs) as took
      from (select at, dimension, key, took, sum(jobs) as jobs
              from kept where took is not null group by 1, 2, 3, 4) binned
     group by at, dimension, key
),
lost_servers as materialized (
    select date_trunc('minute', e.at, 'UTC') as at, s.cluster
      from stretch join liveness_serverevent e on e.at >= stretch.since and e.at <= stretch.until
      left join liveness_server s on s.id = e.server_id
     where {{liveness.is_loss(e)}}
),
losses as (
    select at, '' as dimension, '' as key, count(*) as lost from lost_servers group by at
    union all
    select at, 'cluster', cluster, count(*) from lost_servers where cluster is not null group by at, cluster
),
moved_attempts as materialized (
    select date_trunc('minute', a.interrupted_at, 'UTC') as at, s.cluster
      from stretch join jobs_attempt a on a.interrupted_at >= stretch.since and a.interrupted_at <= stretch.until
      join liveness_server s on s.id = a.server_id
     where a.state = 'RESUBMITTED'
),
moves as (
    select at, '' as dimension, '' as key, count(*) as moved from moved_attempts group by at
    union all
    select at, 'cluster', cluster, count(*) from moved_attempts group by at, cluster
),
counted as materialized (
    select at, dimension, key, coalesce(completed, 0) as completed, coalesce(failed, 0) as failed,
           coalesce(cancelled, 0) as cancelled, coalesce(expired, 0) as expired, coalesce(skipped, 0) as skipped,
           coalesce(waited, '{}') as waited, coalesce(took, '{}') as took,
           coalesce(lost, 0) as lost, coalesce(moved, 0) as moved
      from ends
      full join losses using (at, dimension, key)
      full join moves using (at, dimension, key)
      left join waits using (at, dimension, key)
      left join runs using (at, dimension, key)
),
-- Delete entries of tags and actions that are no longer among the most frequent. Entries of a cluster with counts of
-- waiting jobs stay, even if none of its jobs ended.
deleted_entries as (
    delete from jobs_historyentry h using stretch
     where h.span = 'minute' and h.dimension <> '' and h.waiting is null and h.at >= stretch.since and h.at <= stretch.until
       and not exists (select from counted c where (c.at, c.dimension, c.key) = (h.at, h.dimension, h.key))
 returning h.id
),
written as (
    insert into jobs_historyentry as h
           (span, at, dimension, key, completed, failed, cancelled, expired, skipped, waited, took, lost, moved)
    select 'minute', at, dimension, key, completed, failed, cancelled, expired, skipped, waited, took, lost, moved
      from counted
     order by at, dimension, key
        on conflict (span, dimension, at, key) do update
       set completed = excluded.completed, failed = excluded.failed, cancelled = excluded.cancelled,
           expired = excluded.expired, skipped = excluded.skipped, waited = excluded.waited, took = excluded.took,
           lost = excluded.lost, moved = excluded.moved
     where (h.completed, h.failed, h.cancelled, h.expired, h.skipped, h.waited, h.took, h.lost, h.moved)
           is distinct from (excluded.completed, excluded.failed, excluded.cancelled, excluded.expired,
                             excluded.skipped, excluded.waited, excluded.took, excluded.lost, excluded.moved)
 returning h.id
),
marked as (
    update jobs_historywatermark w
       -- The margin covers a clock that goes back a little.
       set closed_until = case when stretch.until < stretch.now
                               then date_trunc('minute', stretch.until - make_interval(secs => %(margin)s), 'UTC')
                               when stretch.sees_all_counted
                               then greatest(stretch.since, date_trunc(
                                        'minute', stretch.counted_until - make_interval(secs => %(margin)s), 'UTC'))
                               else stretch.closed_until end,
           counted_until = stretch.until,
           counted_xid = %(xid)s::bigint
      from stretch
)
select since, until = now as is_up_to_date,
       ((select count(*) from written) + (select count(*) from deleted_entries))::int as rows
  from stretch

-- statement: note_present
-- Store how many jobs wait and run now, in the row of the current minute: in total and for each cluster. The rows also
-- have the used and free slots. Called after `count_ends`. The last call of a minute counts.
-- returns: id bigint
-- row: NotedPresent
with workers as materialized (
    select s.cluster, s.namespace, s.tags, s.max_concurrent, {{used_slots(s)}} as held,
           s.state = 'RUNNING' and s.cordoned_by is null and s.drain_deadline is null as takes_work
      from liveness_server s where s.type = 'WORKER' and s.state in {{ALIVE}}
),
slots as materialized (
    select coalesce(cluster, '') as cluster, coalesce(sum(held), 0) as used,
           coalesce(sum(greatest(max_concurrent - held, 0)) filter (where takes_work), 0) as free
      from workers group by grouping sets ((), (cluster)) order by grouping(cluster) desc, count(*) desc, cluster
     limit {{KEYS_KEPT}} + 1
),
waiting_jobs as materialized (
    select namespace, required_tags, count(*) as jobs from jobs_workerjob where state = 'PENDING' group by 1, 2
),
-- Workers with the same cluster, namespace and tags count as one.
kinds as materialized (
    select distinct cluster, namespace, tags from workers
),
waiting_by_cluster as (
    select suited.cluster, sum(w.jobs) as jobs
      from waiting_jobs w
     cross join lateral (select distinct kinds.cluster from kinds where {{is_suited(kinds, w)}}) suited
     group by suited.cluster
    union all
    select '', sum(jobs) from waiting_jobs
),
running_by_cluster as (
    select s.cluster, count(*) as jobs
      from jobs_attempt a join liveness_server s on s.id = a.server_id
     where a.state = 'RUNNING' and {{is_live(a)}} group by s.cluster
    union all
    select '', count(*) from jobs_workerjob where state = 'RUNNING'
)
insert into jobs_historyentry (span, at, dimension, key, waiting, running, slots_used, slots_free)
select 'minute', date_trunc('minute', clock_timestamp(), 'UTC'), case when cluster = '' then '' else 'cluster' end, cluster,
       coalesce(w.jobs, 0), coalesce(r.jobs, 0), slots.used, slots.free
  from slots
  left join waiting_by_cluster w using (cluster)
  left join running_by_cluster r using (cluster)
 order by cluster
    on conflict (span, dimension, at, key) do update
   set waiting = excluded.waiting, running = excluded.running,
       slots_used = excluded.slots_used, slots_free = excluded.slots_free
returning id

-- statement: add_up_hours
-- Add up the hours whose minutes are all final, each once. If a clock was set back, add up the opened hours again.
-- takes: since timestamptz
-- returns: id bigint
-- row: AddedHour
with opened as (
    delete from jobs_historyentry h where h.span = 'hour' and h.at >= date_trunc('hour', %(since)s, 'UTC')
),
minutes as materialized (
    select date_trunc('hour', m.at, 'UTC') as hour, m.*
      from jobs_historyentry m
     where m.span = 'minute' and m.at < date_trunc('hour', %(since)s, 'UTC')
       and m.at >= coalesce((select max(at) + interval '1 hour' from jobs_historyentry where span = 'hour'
                                and at < date_trunc('hour', %(since)s, 'UTC')), '-infinity')
),
ranks as (
    select hour, dimension, key,
           row_number() over (partition by hour, dimension
                              order by key = '', sum(completed + failed + cancelled + expired + skipped) desc, key) as rank
      from minutes group by hour, dimension, key
),
kept as materialized (
    select minutes.*, case when rank <= {{KEYS_KEPT}} then minutes.key else '' end as kept_key
      from minutes join ranks using (hour, dimension, key)
),
waits as (
    select hour, dimension, kept_key, jsonb_object_agg(bin, jobs) as waited
      from (select k.hour, k.dimension, k.kept_key, w.bin, sum(w.jobs::bigint) as jobs
              from kept k cross join jsonb_each_text(k.waited) w (bin, jobs) group by 1, 2, 3, 4) binned
     group by hour, dimension, kept_key
),
runs as (
    select hour, dimension, kept_key, jsonb_object_agg(bin, jobs) as took
      from (select k.hour, k.dimension, k.kept_key, w.bin, sum(w.jobs::bigint) as jobs
              from kept k cross join jsonb_each_text(k.took) w (bin, jobs) group by 1, 2, 3, 4) binned
     group by hour, dimension, kept_key
),
sums as (
    select hour, dimension, kept_key, sum(completed) as completed, sum(failed) as failed, sum(cancelled) as cancelled,
           sum(expired) as expired, sum(skipped) as skipped, sum(lost) as lost, sum(moved) as moved,
           avg(waiting) as waiting, avg(running) as running, avg(slots_used) as slots_used, avg(slots_free) as slots_free
      from kept group by hour, dimension, kept_key
)
insert into jobs_historyentry
       (span, at, dimension, key, completed, failed, cancelled, expired, skipped, waited, took, lost, moved,
        waiting, running, slots_used, slots_free)
select 'hour', hour, dimension, kept_key, completed, failed, cancelled, expired, skipped,
       coalesce(waited, '{}'), coalesce(took, '{}'), lost, moved, waiting, running, slots_used, slots_free
  from sums
  left join waits using (hour, dimension, kept_key)
  left join runs using (hour, dimension, kept_key)
returning id

-- statement: delete_old_history
-- Delete minutes that are part of an hour and older than `minutes_kept` hours, and hours past their retention (null:
-- keep them).
-- takes: since timestamptz, minutes_kept int, hours_kept float8
-- returns: id bigint
-- row: DeletedHistory
delete from jobs_historyentry h
 where h.span = 'minute' and h.at < date_trunc('hour', %(since)s, 'UTC')
       and h.at < clock_timestamp() - make_interval(hours => %(minutes_kept)s)
    or h.span = 'hour' and h.at < clock_timestamp() - make_interval(secs => %(hours_kept)s)
returning h.id

-- statement: read_history
-- Read the history of one cluster (empty: of all) since some moment, one row for each step of so many seconds. Steps
-- begin at multiples of their length. A step without a count is empty. Durations come as counts that the caller adds up.
-- takes: seconds int, step int, span text, cluster text
-- returns: at timestamptz, now timestamptz, is_counted bool, completed bigint, failed bigint, cancelled bigint,
--   expired bigint, skipped bigint, lost bigint, moved bigint, waited jsonb|null, waiting float8|null,
--   running float8|null, slots_used float8|null, slots_free float8|null
-- row: HistoryPoint
with edges as materialized (
    select clock_timestamp() as now,
           to_timestamp((floor(extract(epoch from clock_timestamp()) / %(step)s::int) + 1) * %(step)s::int - %(seconds)s::int) as since
),
entries as materialized (
    select h.* from edges join jobs_historyentry h on h.span = 'minute' and h.dimension = case when %(cluster)s::text = '' then '' else 'cluster' end and h.key = %(cluster)s::text and h.at >= edges.since
     where %(span)s::text = 'minute'
        or h.at >= coalesce((select max(at) + interval '1 hour' from jobs_historyentry where span = 'hour'), '-infinity')
    union all
    select h.* from edges join jobs_historyentry h on h.span = 'hour' and h.dimension = case when %(cluster)s::text = '' then '' else 'cluster' end and h.key = %(cluster)s::text and h.at >= edges.since
     where %(span)s::text = 'hour'
),
points as (
    select floor(extract(epoch from h.at - edges.since) / %(step)s::int) as place,
           sum(h.completed) as completed, sum(h.failed) as failed, sum(h.cancelled) as cancelled,
           sum(h.expired) as expired, sum(h.skipped) as skipped, sum(h.lost) as lost, sum(h.moved) as moved,
           jsonb_agg(h.waited) filter (where h.waited <> '{}') as waited,
           avg(h.waiting) as waiting, avg(h.running) as running,
           avg(h.slots_used) as slots_used, avg(h.slots_free) as slots_free
      from edges cross join entries h group by 1
)
select edges.since + make_interval(secs => place * %(step)s::int) as at, edges.now, points.place is not null as is_counted,
       coalesce(completed, 0)::bigint as completed, coalesce(failed, 0)::bigint as failed,
       coalesce(cancelled, 0)::bigint as cancelled, coalesce(expired, 0)::bigint as expired,
       coalesce(skipped, 0)::bigint as skipped, coalesce(lost, 0)::bigint as lost,
       coalesce(moved, 0)::bigint as moved, waited, waiting, running, slots_used, slots_free
  from edges
 cross join generate_series(0, %(seconds)s::int / %(step)s::int - 1) as place
  left join points using (place)
 order by place

-- statement: read_history_by_key
-- Read how jobs ended by tag, action or cluster since some moment. In each dimension the keys with the most failures
-- come first.
-- takes: seconds float8, span text, dimensions text[], limit bigint
-- returns: dimension text, key text, jobs bigint, completed bigint, failed bigint, cancelled bigint, expired bigint, skipped bigint,
--   waited jsonb|null, took jsonb|null, others bigint
-- row: HistoryOfKey
with edges as materialized (
    select date_trunc(%(span)s, clock_timestamp() + ('1 ' || %(span)s)::interval, 'UTC')
               - make_interval(secs => %(seconds)s) as since
),
entries as materialized (
    select h.* from edges
      join jobs_historyentry h on h.span = 'minute' and h.dimension = any(%(dimensions)s) and h.at >= edges.since
     where %(span)s::text = 'minute'
        or h.at >= coalesce((select max(at) + interval '1 hour' from jobs_historyentry where span = 'hour'), '-infinity')
    union all
    select h.* from edges
      join jobs_historyentry h on h.span = 'hour' and h.dimension = any(%(dimensions)s) and h.at >= edges.since
     where %(span)s::text = 'hour'
),
sums as (
    select dimension, key, sum(completed + failed + cancelled + expired + skipped)::bigint as jobs,
           sum(completed)::bigint as completed, sum(failed)::bigint as failed, sum(cancelled)::bigint as cancelled,
           sum(expired)::bigint as expired, sum(skipped)::bigint as skipped
      from entries group by dimension, key
),
ranked as (
    select *, row_number() over (partition by dimension order by failed desc, jobs desc, key) as place,
           count(*) over (partition by dimension) as keys
      from sums
),
shown as (
    select *, keys - least(keys, %(limit)s) as others from ranked where place <= %(limit)s
),
waits as (
    select dimension, key, jsonb_object_agg(bin, number) as waited
      from (select e.dimension, e.key, part.bin, sum(part.number::bigint) as number
              from entries e cross join jsonb_each_text(e.waited) part (bin, number) group by 1, 2, 3) binned
     group by dimension, key
),
runs as (
    select dimension, key, jsonb_object_agg(bin, number) as took
      from (select e.dimension, e.key, part.bin, sum(part.number::bigint) as number
              from entries e cross join jsonb_each_text(e.took) part (bin, number) group by 1, 2, 3) binned
     group by dimension, key
)
select dimension, key, jobs, completed, failed, cancelled, expired, skipped, waited, took, others
  from shown left join waits using (dimension, key) left join runs using (dimension, key)
 order by dimension, place
