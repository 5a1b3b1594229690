with {{seen}} select id from seen
