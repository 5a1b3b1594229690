/* the fields of job_fields.sql as they come in JSON */
action jsonb, payload jsonb, tags text[], required_tags text[], priority int, timeout_seconds float8,
        on_worker_lost text, unmatched text, max_retries int, retry_delay_seconds float8, retry_backoff text,
        retry_on text[], good_until timestamptz, available_at timestamptz, needs jsonb
