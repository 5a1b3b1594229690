-- statement: lock_channels
-- Lock an address until the end of the transaction, so that two calls cannot add the same channel.
-- takes: address text
-- returns: locked bool
-- row: LockedChannels
select true as locked from (select pg_advisory_xact_lock(hashtextextended('channel ' || %(address)s, 0))) locked
