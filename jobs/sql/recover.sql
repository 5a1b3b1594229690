-- Recover the live attempts of lost servers; counted is how long after its server's last heartbeat each is.
with {{lost}},
timed as (
    select coalesce(extract(epoch from clock_timestamp() - gone.last_heartbeat_at)::float8, 0) as seconds
      from held join gone on gone.id = held.server_id
),
counted as (
    insert into liveness_tally (name, labels, number)
    select 'recovery_seconds', array[{{liveness.bucket}}], count(*) from timed group by 2
    union all
    select 'recovery_seconds_sum', '{}', sum(seconds) from timed having count(*) > 0
),
{{settle}}
{{counted}}
