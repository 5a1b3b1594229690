-- The sets of tags among what was said that need a worker and find none, and the filter that is in the way of all that
-- others let through; a full worker counts: it will have room.
deserted as materialized (
    select wanted.need, seen.filter
      from (select distinct need from said cross join jsonb_array_elements(said.needs) n(need)) wanted
     cross join lateral (select array(select jsonb_array_elements_text(wanted.need)) as tags) needed
     cross join lateral (
           select case
                      -- Nobody to be heard of, or of those that have the tags nobody.
                      when not coalesce(bool_or(s.heard), false) or bool_or(s.has) and not bool_or(s.has and s.heard)
                          then 'freshness'
                      when not bool_or(s.has) then 'tags'
                      when (select maintenance_since is not null from liveness_instance)
                           or not bool_or(s.has and s.heard and s.state <> 'MAINTENANCE') then 'maintenance'
                      when not bool_or(s.has and s.heard and s.state = 'RUNNING') then 'state'
                      when not bool_or(s.has and s.heard and s.state = 'RUNNING' and s.is_free) then 'cordon'
                      else 'capacity'
                  end as filter
             from (select s.state, {{heard}} as heard, needed.tags <@ s.tags as has,
                          s.cordoned_by is null and s.drain_deadline is null as is_free
                     from liveness_server s
                    where s.type = 'WORKER' and s.state in {{ALIVE}}) s
           ) seen
     where not exists (
        select from liveness_server s
         where {{schedulable}} and s.max_concurrent > 0 and needed.tags <@ s.tags)
)
