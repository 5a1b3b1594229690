with {{judged}},
{{let_go}},
{{silent}}
select id from silent
