-- A row could not be written: by what step, which, why and when last; and once more in the tally. What was mended long
-- ago is forgotten.
with counted as (
    insert into liveness_tally (name, labels, number) values ('rows_left_out', array[%(step)s::text], 1)
),
forgotten as (
    delete from liveness_leftout where id in (
        select l.id from liveness_leftout l
         where l.at < clock_timestamp() - interval '1 day' and (l.step, l.row) <> (%(step)s, %(row)s)
           for update skip locked)
)
insert into liveness_leftout as l (step, row, error) values (%(step)s, %(row)s, %(error)s)
    on conflict (step, row) do update
   set error = excluded.error, at = clock_timestamp(), times = l.times + 1
