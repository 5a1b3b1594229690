-- Nobody can run them: they fail.
with recursive {{tag_sets}},
{{unmatched}}
update jobs_workerjob j
   set state = 'FAILED', finished_at = clock_timestamp(),
       error = jsonb_build_object(
           'code', 'NO_MATCHING_WORKER', 'message', 'No active worker with required tags to run this step',
           'required_tags', to_jsonb(j.required_tags))
  from unmatched
 where j.id = unmatched.id
returning j.id as job, j.state as job_state, j.error ->> 'message' as reason
