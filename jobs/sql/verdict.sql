-- statement: read_incidents
-- What went wrong lately: how many jobs FAILED within five minutes and in the hour before them (each counted up to
-- `counted`), how many are in quarantine (of the last `counted`), and the last incident: the servers that were lost
-- within five minutes of the last of them, and what became of the jobs that they held. Of one cluster, or (empty) of
-- all; of one, how many FAILED is said as it was counted for the charts.
-- takes: counted bigint, cluster text
-- returns: failed_lately bigint, failed_before bigint, quarantined bigint, incident jsonb|null
-- row: Incidents
with ago as materialized (
    -- An index is entered by a moment that is told once; by `clock_timestamp()` itself it would be walked over.
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
lost_attempts as materialized (
    select distinct a.job_id, last_of_job.state
      from lost_servers l
     cross join lateral (
           select a.job_id from jobs_attempt a where a.server_id = l.id and {{is_live(a)}}
            union all
           select a.job_id from jobs_attempt a
            where a.server_id = l.id and a.ended_by = 'liveness' and a.finished_at >= l.at) a
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
          from lost_servers l having count(*) > 0) as incident

-- statement: read_cluster_figures
-- What of `read_figures` is of one cluster: the jobs that its workers could take, by when the first of them could have been
-- claimed, and those that its servers hold.
-- takes: cluster text
-- returns: counts jsonb|null, waiting float8|null, held_by_lost_server bigint
-- row: ClusterFigures
with recursive {{pending_tag_sets}},
-- Workers of a kind are one.
kinds as materialized (
    select distinct s.namespace, s.tags from liveness_server s
     where s.cluster = %(cluster)s and s.type = 'WORKER' and s.state in {{ALIVE}}
),
waiting_jobs as materialized (
    select j.available_at
      from tag_sets
     cross join lateral (
           select j.available_at from jobs_workerjob j
            where j.state = 'PENDING' and j.namespace = tag_sets.namespace and j.required_tags = tag_sets.required_tags) j
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
)
select (select jsonb_object_agg(state, jobs) from counted where jobs > 0) as counts,
       (select extract(epoch from clock_timestamp() - min(available_at))::float8
          from waiting_jobs where available_at <= clock_timestamp()) as waiting,
       (select count(*) from held where is_kept and state = 'RUNNING') as held_by_lost_server
