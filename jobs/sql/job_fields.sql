action, payload, tags, required_tags, priority, timeout_seconds, on_worker_lost, unmatched, max_retries,
        retry_delay_seconds, retry_backoff, retry_on, good_until
