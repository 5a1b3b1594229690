/* whether heartbeat h is past its retention: its server's, or its attempt's */
(h.at < case h.role when 'server' then %(servers)s::timestamptz else %(attempts)s::timestamptz end)
