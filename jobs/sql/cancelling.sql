/* what a cancellation does to job j: a waiting one ends at once; of a live one it is asked, and its worker hears it */
       state = case j.state when 'PENDING' then 'CANCELLED' else j.state end,
       finished_at = case j.state when 'PENDING' then clock_timestamp() end,
       cancel_requested_at = case when j.state in {{LIVE}} then clock_timestamp() end,
       cancel_requested_observed = case when j.state in {{LIVE}} then observed_now() end
