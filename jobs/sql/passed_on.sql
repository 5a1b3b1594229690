/* what the ends of these jobs move on: executions, and triggers by the jobs that evaluated them */
       array_agg(execution_id) filter (where execution_id is not null) as executions,
       array_agg(job_id) filter (where kind = 'TRIGGER') as evaluations,
       -- and the first of them, for the log
       (array_agg(job_id))[1:100] as listed
