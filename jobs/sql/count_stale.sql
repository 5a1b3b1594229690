-- How many there are, by state; a threshold that is null counts none.
select a.state, count(*)
{{without_sign}}
 group by a.state
