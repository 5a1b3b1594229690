"""The books of SQL of this app, one for each service. How to read them: controlplane/core/sql_book.py."""

from controlplane.core.sql_book import define
from controlplane.core.statements import Statements
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
