with {{held_in_vain}} select id from due
