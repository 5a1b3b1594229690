/* the clock as it stood when a check began to judge, in place of the table: it may have advanced since */
liveness_clock as (select tick, %(reading)s::float8 as reading from liveness_clock)
