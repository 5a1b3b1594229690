"""The books of SQL of this app, one for each service. How to read them: controlplane/core/sql_book.py."""

from controlplane.core.sql_book import define_states
from controlplane.core.statements import Statements
from liveness import states

define_states(
    ALIVE=states.ALIVE,
    MAY_HEARTBEAT=states.MAY_HEARTBEAT,
    TERMINATED=states.TERMINATED,
    RETIRED=states.RETIRED,
    TO_RECOVER=states.TO_RECOVER,
    STOPPED=states.STOPPED,
)

sql = Statements("liveness")
