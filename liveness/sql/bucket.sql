/* the bucket of a histogram that `seconds` falls in, by its upper bound */
coalesce((select min(le) from unnest(array[1, 2, 5, 10, 15, 30, 45, 60, 90, 120, 300, 600, 1800]) le
           where seconds <= le)::text, '+Inf')
