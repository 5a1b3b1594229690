-- How many jobs of an owner wait before this statement, counted no further than matters; 0 where there is no limit.
case when %(waiting_limit)s::int is null then 0 else (
    select count(*) from (
        select from jobs_workerjob j where j.owner_id = %(owner)s and j.state = 'PENDING' limit %(waiting_limit)s::int
    ) waiting) end
