-- Delete the slots of a span that are past their retention.
with gone as (
    delete from jobs_triggerslot s
     where s.id > %(after)s and s.id <= %(last)s and s.slot < %(executions)s and s.outcome <> 'EVALUATING'
    returning 1
)
select count(*) as deleted from gone
