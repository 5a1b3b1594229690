-- Executions that stand still though something of them has ended. Whatever ends passes that on in its own transaction,
-- so what can be seen here is torn. (Scalar subqueries, so that they are looked up by index and never hashed from the
-- whole table.)
with torn (id) as (
    select j.execution_id from jobs_workerjob j
     where j.state in {{TERMINAL}} and not j.passed_on and not j.is_hook and j.execution_id is not null
     union
    select e.id from jobs_execution e
     where e.state not in {{OVER}}
       and (select j.id from jobs_workerjob j
             where j.execution_id = e.id and j.state not in {{TERMINAL}} and not j.is_hook limit 1) is null
     union
    select j.execution_id from jobs_workerjob j
     where j.state = 'BLOCKED' and not j.is_hook
       and (select needed.id from jobs_stepdependency d join jobs_workerjob needed on needed.id = d.depends_on_id
             where d.step_id = j.id and needed.state not in {{TERMINAL}} limit 1) is null
     union
    select j.execution_id from jobs_workerjob j where j.state = 'PENDING' and j.required_tags = array['']
     union
    select p.execution_id from jobs_workerjob p join jobs_execution c on c.parent_step_id = p.id
     where p.state = 'RUNNING' and p.execution_id is not null and c.state in {{OVER}}
)
select e.id
  from torn join jobs_execution e using (id)
 where e.state not in {{OVER}} and e.id > %(after)s
 order by e.id
 limit %(batch)s
