-- A waiting job is cancelled at once. Of a live one it is asked, once: its worker hears it in its next heartbeat.
update jobs_workerjob j
   set state = case j.state when 'PENDING' then 'CANCELLED' else j.state end,
       finished_at = case j.state when 'PENDING' then clock_timestamp() end,
       cancel_requested_at = case when j.state in {{LIVE}} then clock_timestamp() end,
       cancel_requested_observed = case when j.state in {{LIVE}} then observed_now() end
 where j.id = %(job)s and {{interrupt_reach}} and j.state not in {{TERMINAL}} and j.cancel_requested_at is null
returning j.id, j.state
