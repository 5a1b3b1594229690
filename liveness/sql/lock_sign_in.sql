-- Those who try to sign in from one address are counted one after the other.
select pg_advisory_xact_lock(hashtextextended(%(address)s, 0))
