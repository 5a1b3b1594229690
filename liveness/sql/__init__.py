"""The statements of this app, a file each. Docs: controlplane/core/statements.py."""

from controlplane.core.statements import Statements, define
from liveness import states

define(
    ALIVE=states.ALIVE,
    BEATING=states.BEATING,
    FINAL=states.FINAL,
    GONE=states.GONE,
    LEAVING=states.LEAVING,
    STOPPED=states.STOPPED,
)

sql = Statements("liveness")
