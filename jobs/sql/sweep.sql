-- End the attempts whose time is over.
with {{overdue}},
{{settle}}
{{counted}}
