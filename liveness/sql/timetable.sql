-- statement: begin_task
-- Record the start of a periodic task, unless it was started within the last `after` seconds. The age and the sender of
-- the tick do not matter. The task also runs if the database's clock was set back.
-- takes: task text, after numeric
-- returns: task text
insert into liveness_timetable as t (task, at) values (%(task)s, clock_timestamp())
    on conflict (task) do update set at = excluded.at
 where abs(extract(epoch from excluded.at - t.at)) >= %(after)s
returning task
