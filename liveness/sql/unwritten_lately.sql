-- The same by itself.
select {{unwritten}} as unwritten
