-- A job that waits or is live ends FAILED, and that is final.
with waiting as (
    update jobs_workerjob j
       set state = 'FAILED', error = %(error)s::jsonb, finished_at = clock_timestamp()
     where j.id = %(job)s and {{interrupt_reach}} and {{consequences}} and j.state = 'PENDING'
),
{{interrupt_held}},
{{settle}}
{{each}}
