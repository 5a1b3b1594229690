-- Which of these jobs stand still, and why.
with tag_sets (tags) as (
    select distinct j.required_tags from jobs_workerjob j where j.id = any(%(only)s::uuid[]) and j.state = 'PENDING'
),
{{unmatched}},
{{flagged}}
select id, flag from flagged
