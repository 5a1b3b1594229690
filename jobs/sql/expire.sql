-- They are EXPIRED; how many.
with {{late}},
expired as (
    update jobs_workerjob j
       set state = 'EXPIRED', finished_at = clock_timestamp(),
           error = jsonb_build_object('code', 'EXPIRED', 'message', format('it was good until %%s', j.good_until))
      from late
     where j.id = late.id
 returning j.id as job_id, j.state, j.execution_id, j.kind
)
select state, count(*) as jobs, {{passed_on}}
  from expired group by state
