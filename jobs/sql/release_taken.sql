-- Attempts that were taken from a server which cannot run them any more, or was told for long enough: the next attempt
-- of the job need not wait longer.
with due as materialized (
    select t.id, t.attempt_id, t.job_id, s.id as server_id, s.name, s.state,
           coalesce({{stops_at}} > clock.reading and s.state not in {{STOPPED}}, false) as disobeys
      from jobs_takenattempt t
      left join liveness_server s on s.id = t.server_id
     cross join liveness_clock clock
     where s.id is null
        or s.state in {{STOPPED}}
        or {{stops_at}} <= clock.reading
        or t.told_observed + %(cancel_timeout)s <= s.heard_observed
     order by t.id
       for update of t skip locked
),
released as (
    delete from jobs_takenattempt t using due where t.id = due.id
),
noted as (
    insert into liveness_serverevent (server_id, server_name, from_state, to_state, action, actor, reason)
    select distinct server_id, name, state, state, 'does_not_stop', 'liveness',
           format('told for %%s s that attempt %%s is not its own, it has not said that it stopped it: '
                  'the job goes on elsewhere', %(cancel_timeout)s::float8, attempt_id)
      from due where disobeys
)
select attempt_id as attempt, job_id as job, server_id as server, name, disobeys from due
