-- The next attempt of each of these jobs need not wait longer.
with {{held_in_vain}},
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
