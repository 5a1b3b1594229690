with {{newly_empty}} select id from newly_empty
