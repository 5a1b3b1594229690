-- The silent become DISCONNECTED.
with {{judged}},
{{let_go}},
{{silent}},
disconnected as (
    update liveness_server s
       set state = 'DISCONNECTED',
           disconnected_observed = s.heard_observed + silent.silence,
           state_actor = 'liveness',
           state_reason = format('silent for %%s s, its timeout is %%s s', round(silent.silence::numeric, 1), s.timeout)
      from silent
     where s.id = silent.id
 returning s.id, s.type, s.name, s.state_reason as reason, silent.silence as seconds
),
counted as (
    insert into liveness_tally (name, labels, number)
    select 'detection_seconds', array[{{bucket}}], count(*) from disconnected group by 2
    union all
    select 'detection_seconds_sum', '{}', sum(seconds) from disconnected having count(*) > 0
)
select id, type, name, reason, seconds as silence from disconnected
