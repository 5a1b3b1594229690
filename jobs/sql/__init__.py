"""The statements of this app, a file each. Docs: controlplane/core/statements.py."""

from controlplane.core.statements import Statements, define
from jobs import states
from liveness import sql as liveness_sql  # noqa: F401 - names the lists of states that these statements share

define(LIVE=states.LIVE, OPEN=states.OPEN, TERMINAL=states.TERMINAL, INTERRUPTED=states.INTERRUPTED, OVER=states.OVER)

sql = Statements("jobs")
