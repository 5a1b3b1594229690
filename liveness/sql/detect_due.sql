with {{silent}} select id from silent
