-- A row could not be written: by what step, which, why and when last; and once more in the tally.
with counted as (
    insert into liveness_tally (name, labels, number) values ('rows_left_out', array[%(step)s::text], 1)
)
insert into liveness_leftout as l (step, row, error) values (%(step)s, %(row)s, %(error)s)
    on conflict (step, row) do update
   set error = excluded.error, at = clock_timestamp(), times = l.times + 1
