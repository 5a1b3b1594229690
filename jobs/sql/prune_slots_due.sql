-- The next slots in the order of their ids, how many of them are past their retention, and whether to look on.
select (array_agg(s.id order by s.id desc))[1] as last,
       count(*) filter (where s.slot < %(executions)s and s.outcome <> 'EVALUATING') as due,
       bool_or(s.slot < %(executions)s) as has_old
  from (select id, slot, outcome from jobs_triggerslot where id > %(after)s order by id limit %(batch)s) s
