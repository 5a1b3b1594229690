/* alive server s was not heard in time */
(s.state in {{ALIVE}} and not s.fresh)
