/* server s is lost by the reading of the clock */
coalesce({{liveness.lost_at}} <= clock.reading, false)
