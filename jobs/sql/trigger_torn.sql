-- Jobs of triggers that have ended without what follows from that.
select j.id
  from jobs_workerjob j
 where j.state in {{TERMINAL}} and not j.passed_on and j.kind = 'TRIGGER' and j.execution_id is null
   and j.id > %(after)s
 order by j.id
 limit %(batch)s
