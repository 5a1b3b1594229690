with {{leaving}} select id from leaving
