/* the observed time at which the running attempts of server s are given away (null: it is not lost) */
(case when s.state not in {{ALIVE}} then {{given_away_at}} end)
