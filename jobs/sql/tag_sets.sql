-- The sets of required tags that pending jobs have: one index probe each, however many jobs wait.
tag_sets (tags) as (
    (select j.required_tags from jobs_workerjob j where j.state = 'PENDING' order by j.required_tags limit 1)
    union all
    select (select j.required_tags from jobs_workerjob j
             where j.state = 'PENDING' and j.required_tags > tag_sets.tags order by j.required_tags limit 1)
      from tag_sets where tag_sets.tags is not null
)
