-- statement: read_incidents
-- What went wrong lately: how many jobs FAILED within five minutes and in the hour before them (each counted up to
-- `counted`), how many are in quarantine, and the last incident: the servers that were lost within five minutes of the
-- last of them, and what became of the jobs that they held.
-- takes: counted bigint
-- returns: failed_lately bigint, failed_before bigint, quarantined bigint, incident jsonb|null
-- row: Incidents
with last_loss as materialized (
    select e.at from liveness_serverevent e
     where {{liveness.is_loss(e)}} order by e.at desc limit 1
),
lost_servers as materialized (
    select e.server_id as id, e.server_name as name, e.at
      from liveness_serverevent e, last_loss
     where {{liveness.is_loss(e)}} and e.at >= last_loss.at - interval '5 minutes'
     order by e.at desc limit 100
),
-- Of each server the last attempts alone: what it held when it was lost is among them.
lost_attempts as materialized (
    select distinct a.job_id, last_of_job.state
      from lost_servers l
     cross join lateral (
           select * from jobs_attempt a where a.server_id = l.id order by a.id desc limit 500) a
     cross join lateral (select j.state from jobs_workerjob j where j.id = a.job_id offset 0) last_of_job
     where a.finished_at is null or a.ended_by = 'liveness' and a.finished_at >= l.at
     limit 1000
)
select (select count(*) from (
            select from jobs_workerjob j
             where j.state = 'FAILED' and j.finished_at > clock_timestamp() - interval '5 minutes'
             order by j.finished_at desc limit %(counted)s) lately) as failed_lately,
       (select count(*) from (
            select from jobs_workerjob j
             where j.state = 'FAILED' and j.finished_at > clock_timestamp() - interval '65 minutes'
               and j.finished_at <= clock_timestamp() - interval '5 minutes'
             order by j.finished_at desc limit %(counted)s) before) as failed_before,
       (select count(*) from (
            select from jobs_workerjob j where {{is_quarantined(j)}} limit %(counted)s) quarantined) as quarantined,
       (select jsonb_build_object(
                   'at', extract(epoch from min(l.at)), 'servers', count(distinct l.id),
                   'names', (array_agg(distinct l.name))[1:3], 'first', (array_agg(l.id order by l.at))[1],
                   'jobs', (select coalesce(jsonb_object_agg(state, jobs), '{}')
                              from (select state, count(*) as jobs from lost_attempts group by state) counted))
          from lost_servers l having count(*) > 0) as incident
