/* seconds after its last heartbeat at which server s stops its jobs' code by itself: 20 per cent of its timeout before
   they could be given away (null: never) */
(case when s.worker_task_restart_strategy <> 'NEVER' then
    -- Of times in the thousands floats leave a trace of the sum.
    round(greatest({{given_away_at}} - s.heard_observed - s.timeout * 0.2, 0)::numeric, 3)::float8
end)
