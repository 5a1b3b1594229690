/* step j waits or is live and is to be cancelled with its execution */
((j.state = 'PENDING' or j.state in {{LIVE}} and j.attempt_id is not null)
 and j.cancel_requested_at is null and not j.is_hook)
