-- statement: read_incidents
-- Read what went wrong recently, in one cluster or (empty) in all. `failed_lately` and `failed_before`: jobs that FAILED
-- within five minutes and in the hour before, each counted up to `counted`; for one cluster they come from the history.
-- `quarantined`: jobs in quarantine, of the last `counted`. `incident`: the servers that were lost within five minutes
-- of the last loss, and what happened to their jobs. `last_worker`: the worker that ended last, and whether it was lost
-- (null: there still is a worker, or there never was one).
-- takes: counted bigint, cluster text
-- returns: failed_lately bigint, failed_before bigint, quarantined bigint, incident jsonb|null, last_worker jsonb|null
-- row: Incidents
with ago as materialized (
    -- A constant moment, so that PostgreSQL can enter an index. With `clock_timestamp()` it would scan the whole index.
    select clock_timestamp() - interval '5 minutes' as five, clock_timestamp() - interval '65 minutes' as sixty_five
),
last_loss as materialized (
    select e.at from liveness_serverevent e
     where {{liveness.is_loss(e)}} and {{is_of_cluster(e)}} order by e.at desc limit 1
),
lost_servers as materialized (
    select e.server_id as id, e.server_name as name, e.at
      from liveness_serverevent e, last_loss
     where {{liveness.is_loss(e)}} and {{is_of_cluster(e)}} and e.at >= last_loss.at - interval '5 minutes'
     order by e.at desc limit 100
),
given_to_others as materialized (
    -- A broker delivers the tasks of a dead Celery worker to others, often before the worker is marked as lost.
    select a.job_id, a.server_id, a.interrupted_at
      from (select a.job_id, a.server_id, a.interrupted_at, a.ended_by, a.state
              from jobs_attempt a
             where a.interrupted_at >= (select min(at) from lost_servers) - interval '15 minutes'
               and a.interrupted_at <= (select max(at) from lost_servers) + interval '1 hour'
             order by a.interrupted_at limit 10000) a
     where a.ended_by = 'server' and a.state in ('RESUBMITTED', 'REQUEUED')
),
lost_attempts as materialized (
    select distinct a.job_id, last_of_job.state
      from lost_servers l
     cross join lateral (
           select a.job_id from jobs_attempt a where a.server_id = l.id and {{is_live(a)}}
            union all
           select a.job_id from jobs_attempt a
            where a.server_id = l.id and a.ended_by = 'liveness' and a.finished_at >= l.at
            union all
           select a.job_id from given_to_others a
             join liveness_server s on s.id = a.server_id
            where a.server_id = l.id and a.interrupted_at >= least(l.at, s.last_heartbeat_at)) a
     cross join lateral (select j.state from jobs_workerjob j where j.id = a.job_id offset 0) last_of_job
     limit 1000
)
select case when %(cluster)s::text = '' then (select count(*) from (
            select from jobs_workerjob j
             where j.state = 'FAILED' and j.finished_at > (select five from ago)
             order by j.finished_at desc limit %(counted)s) lately)
       else (select coalesce(sum(h.failed), 0)::bigint from jobs_historyentry h
              where h.span = 'minute' and h.dimension = 'cluster' and h.key = %(cluster)s
                and h.at > (select five from ago)) end as failed_lately,
       case when %(cluster)s::text = '' then (select count(*) from (
            select from jobs_workerjob j
             where j.state = 'FAILED' and j.finished_at > (select sixty_five from ago)
               and j.finished_at <= (select five from ago)
             order by j.finished_at desc limit %(counted)s) before)
       else (select coalesce(sum(h.failed), 0)::bigint from jobs_historyentry h
              where h.span = 'minute' and h.dimension = 'cluster' and h.key = %(cluster)s
                and h.at > (select sixty_five from ago)
                and h.at <= (select five from ago)) end as failed_before,
       (select count(*) from (
            select j.id from jobs_workerjob j where {{is_quarantined(j)}} order by j.id desc limit %(counted)s) last
         where %(cluster)s::text = '' or %(cluster)s = (
               select s.cluster from jobs_attempt a join liveness_server s on s.id = a.server_id
                where a.job_id = last.id order by a.number desc limit 1)) as quarantined,
       (select jsonb_build_object(
                   'at', extract(epoch from min(l.at)), 'servers', count(distinct l.id),
                   'names', (array_agg(distinct l.name))[1:3], 'first', (array_agg(l.id order by l.at))[1],
                   'jobs', (select coalesce(jsonb_object_agg(state, jobs), '{}')
                              from (select state, count(*) as jobs from lost_attempts group by state) counted))
          from lost_servers l having count(*) > 0) as incident,
       (select jsonb_build_object(
                   'id', s.id, 'name', s.name, 'at', extract(epoch from s.state_changed_at),
                   'is_lost', exists (select from liveness_serverevent e where e.server_id = s.id and {{liveness.is_loss(e)}}))
          from liveness_server s
         where s.state in {{ENDED}} and s.type = 'WORKER' and (%(cluster)s::text = '' or s.cluster = %(cluster)s)
           and not exists (
               select from liveness_server left_one
                where left_one.state not in {{ENDED}} and left_one.state <> 'INACTIVE' and left_one.type = 'WORKER'
                  and (%(cluster)s::text = '' or left_one.cluster = %(cluster)s))
         order by s.state_changed_at desc limit 1) as last_worker

-- statement: read_cluster_figures
-- Read the figures of one cluster that replace those of `read_figures`. They are the jobs that its workers could take,
-- how long the oldest of them has waited, and the attempts that its servers hold.
-- takes: cluster text, counted bigint
-- returns: counts jsonb|null, waiting float8|null, held_by_lost_server bigint
-- row: ClusterFigures
with recursive {{pending_tag_sets}},
-- Workers with the same namespace and tags count as one.
kinds as materialized (
    select distinct s.namespace, s.tags from liveness_server s
     where s.cluster = %(cluster)s and s.type = 'WORKER' and s.state in {{ALIVE}}
),
waiting_jobs as materialized (
    select j.id, j.available_at, j.attempt_count
      from tag_sets
     cross join lateral (
           select j.id, j.available_at, j.attempt_count from jobs_workerjob j
            where {{is_claimable(j)}} and j.namespace = tag_sets.namespace
              and j.required_tags = tag_sets.required_tags) j
     where exists (select from kinds where {{is_suited(kinds, tag_sets)}})
),
held as materialized (
    select a.state, s.worker_task_restart_strategy = 'NEVER' and s.state not in {{ALIVE}} and {{is_lost(s)}} as is_kept
      from liveness_server s
     cross join liveness_clock clock
      join jobs_attempt a on a.server_id = s.id and {{is_live(a)}}
     where s.cluster = %(cluster)s
),
counted as (
    select state, count(*) as jobs from held group by state
    union all
    select 'PENDING', count(*) from waiting_jobs
),
{{longest_wait}}
select (select jsonb_object_agg(state, jobs) from counted where jobs > 0) as counts,
       (select seconds from longest_wait) as waiting,
       (select count(*) from held where is_kept and state = 'RUNNING') as held_by_lost_server
