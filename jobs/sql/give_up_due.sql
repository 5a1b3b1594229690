with recursive {{tag_sets}},
{{unmatched}},
{{hung}}
select id from hung
