/* server s was heard in time, by the observed clock and by the clock on the wall: neither while observed time stands
   still, nor when a clock was set back, is a silent one shown as fresh */
(s.last_heartbeat_at is not null
 and (select observed_now()) - s.heard_observed < s.heartbeat_interval * %(staleness_multiplier)s
 and extract(epoch from (select clock_timestamp()) - s.last_heartbeat_at)
     < s.heartbeat_interval * %(staleness_multiplier)s)
