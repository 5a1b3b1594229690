"""SQL books of this app, one for each service. controlplane/core/sql_book.py explains their syntax."""

from controlplane.agent.limits import FENCE_MARGIN
from controlplane.core.sql_book import define_numbers, define_states
from liveness import states
from liveness.sql.statements import LivenessStatements

define_states(
    ALIVE=states.ALIVE,
    MAY_HEARTBEAT=states.MAY_HEARTBEAT,
    TERMINATED=states.TERMINATED,
    RETIRED=states.RETIRED,
    ENDED=states.ENDED,
    TO_RECOVER=states.TO_RECOVER,
    LOST=states.LOST,
    STOPPED=states.STOPPED,
    TROUBLED=states.TROUBLED,
)

BUCKETS = [1, 2, 5, 10, 15, 30, 45, 60, 90, 120, 300, 600, 1800]
"""Upper bounds of the histograms, in seconds."""
OWN_EVENTS_LIMIT = 30
"""Largest number of events per hour that a server can cause itself, by its own cordon or by MAINTENANCE."""
define_numbers(BUCKETS=BUCKETS, FENCE_MARGIN=FENCE_MARGIN, OWN_EVENTS_LIMIT=OWN_EVENTS_LIMIT)

sql = LivenessStatements("liveness")
