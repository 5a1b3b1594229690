-- Nobody can run them: they fail; how many, by the tags that nobody has.
with recursive {{tag_sets}},
{{unmatched}},
{{hung}},
given_up as (
    update jobs_workerjob j
       set state = 'FAILED', finished_at = clock_timestamp(),
           error = jsonb_build_object(
               'code', 'NO_MATCHING_WORKER', 'message', 'No active worker with required tags to run this step',
               'required_tags', to_jsonb(j.required_tags))
      from hung
     where j.id = hung.id
 returning j.id as job_id, j.state, j.required_tags, j.error ->> 'message' as reason, j.execution_id, j.step, j.kind
),
noted as (
    insert into jobs_executionevent (execution_id, code, step, line)
    select execution_id, 'NO_MATCHING_WORKER', step, format('%%s: %%s', step, reason)
      from given_up where execution_id is not null
)
select state, required_tags, reason, count(*) as jobs, {{passed_on}}
  from given_up group by state, required_tags, reason
