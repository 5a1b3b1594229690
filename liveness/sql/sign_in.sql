-- A try to sign in is counted, unless it comes too soon: then, in how many seconds it would not (under lock_sign_in.sql).
-- Each key lets `at_once` tries through together, and after that one per `pause` seconds. What is refused costs nothing
-- more, so nobody is kept out for longer than one pause by those who go on trying.
with tried as materialized (
    select given.*, now.at as now, greatest(t.until, now.at) as until
      from unnest(%(keys)s::text[], %(at_once)s::int[], %(pauses)s::float8[]) as given (key, at_once, pause)
     cross join (select clock_timestamp() as at) now
      left join liveness_signin t using (key)
),
wait as (
    select greatest(max(extract(epoch from until - now) - (at_once - 1) * pause), 0)::float8 as seconds from tried
),
counted as (
    insert into liveness_signin (key, until)
    select tried.key, tried.until + make_interval(secs => tried.pause) from tried, wait where wait.seconds = 0
        on conflict (key) do update set until = excluded.until
),
forgotten as (
    delete from liveness_signin where key in (
        select t.key from liveness_signin t
         where t.until < clock_timestamp() and t.key <> all(%(keys)s) for update skip locked)
)
select seconds from wait
