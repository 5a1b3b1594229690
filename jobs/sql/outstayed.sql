/* server s was heard after the deadline of its drain, so it knew of it, and a timeout later it has not given back what
   it holds. One that was not heard since may not know: it is lost, and moves, as any that is silent */
((s.state in {{ALIVE}} or s.state = 'TERMINATING')
 and s.heard_observed >= s.drain_until_observed + s.timeout
 and s.drain_until_observed + s.timeout <= clock.reading)
