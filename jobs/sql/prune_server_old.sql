/* whether server s is past its retention */
(s.state = 'INACTIVE' and s.state_changed_at < %(servers)s)
