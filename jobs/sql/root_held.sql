/* job j is no step, or the root of its tree is held from here on, before the job is. Nobody is waited for: what somebody
   else moves on at this moment is for the next sweep */
(j.execution_id is null or exists (
    select from jobs_execution r
     where r.id = (select e.root_id from jobs_execution e where e.id = j.execution_id)
       for no key update skip locked))
