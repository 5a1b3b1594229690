with recursive {{tag_sets}},
{{unmatched}}
select id from unmatched
