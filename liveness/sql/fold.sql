-- What was counted since becomes one row for each counter. Who reads meanwhile sees all of it before or after.
with counted as (
    delete from liveness_tally
     where id in (select id from liveness_tally order by id limit 100000 for update skip locked)
 returning name, labels, number
)
insert into liveness_tally (name, labels, number)
select name, labels, sum(number) from counted group by name, labels
returning id
