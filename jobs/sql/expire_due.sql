with {{late}} select id from late
