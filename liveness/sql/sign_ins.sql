-- statement: lock_sign_ins_of_address
-- Lock an address, so that its sign-in attempts are counted one after the other.
-- takes: address text
-- returns: pg_advisory_xact_lock void
select pg_advisory_xact_lock(hashtextextended(%(address)s, 0))

-- statement: count_sign_in
-- Count a sign-in attempt and return 0, or return the seconds until one is allowed (under `lock_sign_ins_of_address`).
-- Each key allows `at_once` attempts together, and then one per `pause` seconds. Refused attempts are not counted, so
-- nobody is locked out for longer than one pause by repeated attempts.
-- takes: keys text[], at_once int[], pauses float8[]
-- returns: seconds float8
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
