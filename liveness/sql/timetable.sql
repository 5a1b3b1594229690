-- statement: begin_task
-- A tick of a periodic task, however old it is and whoever sent it: the task begins, unless it was begun a moment ago. A
-- clock that was set back keeps nothing from beginning.
-- takes: task text, after numeric
-- returns: task text
insert into liveness_timetable as t (task, at) values (%(task)s, clock_timestamp())
    on conflict (task) do update set at = excluded.at
 where abs(extract(epoch from excluded.at - t.at)) >= %(after)s
returning task
