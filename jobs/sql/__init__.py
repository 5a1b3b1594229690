"""SQL books of this app, one for each service. controlplane/core/sql_book.py explains their syntax."""

from controlplane.core.sql_book import define_numbers, define_states
from jobs import history, states
from jobs.sql.statements import JobsStatements
from liveness import sql as liveness_sql  # noqa: F401 - names the lists of states that these statements share

define_states(
    LIVE=states.LIVE,
    OPEN=states.OPEN,
    TERMINAL=states.TERMINAL,
    INTERRUPTED=states.INTERRUPTED,
    EXECUTION_TERMINAL=states.EXECUTION_TERMINAL,
    QUARANTINED=states.QUARANTINED,
    QUARANTINED_JSON=[f'"{code}"' for code in states.QUARANTINED],
)
define_numbers(
    SUMS_LOCK=0x636F6E74726F6C62,  # key of an advisory lock; no other program may use it in this database
    RULES_LOCK=0x636F6E74726F6C6C,  # another one
    BINS_PER_DOUBLING=history.BINS_PER_DOUBLING,
    KEYS_KEPT=history.KEYS_KEPT,
    OVERTAKEN_FOR=60,  # seconds for which jobs that need fewer slots start before a job that is older
    FAIR_QUEUES_LIMIT=20,  # priorities of a set of tags in which keys take turns
    FLOOR_AGE=1,  # longest duration of a submission's transaction in seconds
)

sql = JobsStatements("jobs")
