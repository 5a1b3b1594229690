-- Executions that stand still though something of them has ended. Whatever ends passes that on in its own transaction,
-- so what can be seen here is torn.
select e.id
  from jobs_execution e
 where e.state not in {{OVER}}
   and (   exists (select from jobs_workerjob j
                    where j.execution_id = e.id and j.state in {{TERMINAL}} and not j.passed_on and not j.is_hook)
        or not exists (select from jobs_workerjob j
                        where j.execution_id = e.id and j.state not in {{TERMINAL}} and not j.is_hook)
        or exists (select from jobs_workerjob j
                    where j.execution_id = e.id and j.state = 'BLOCKED' and not j.is_hook
                      and not exists (
                          select from jobs_stepdependency d join jobs_workerjob needed on needed.id = d.depends_on_id
                           where d.step_id = j.id and needed.state not in {{TERMINAL}}))
        or exists (select from jobs_workerjob j
                    where j.execution_id = e.id and j.state = 'PENDING' and j.required_tags = array[''])
        or exists (select from jobs_execution c join jobs_workerjob p on p.id = c.parent_step_id
                    where p.execution_id = e.id and p.state = 'RUNNING' and c.state in {{OVER}}))
 order by e.id
 limit %(batch)s
