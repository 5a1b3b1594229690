/* servers `s` that need attention first, those that leave next; at the end those that have ended */
(case
    when s.state = 'INACTIVE' then 3
    when s.state in ('DISCONNECTED', 'ERROR') then 0
    when s.state not in {{ALIVE}} then 1
    when s.late then 0
    else 2
end)
