with {{recovered}} select id from recovered
