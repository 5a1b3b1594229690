"""Doubt whether a live job or attempt is running. There is doubt if its server is silent or lost."""

from jobs import states
from liveness import states as server_states
from liveness.states import ServerState

LOST_HOLDERS = frozenset(set(ServerState) - server_states.ALIVE - {ServerState.TERMINATING})


def doubt_about(state: str, server: str | None) -> str:
    """Return why a live job or attempt may not be running, or an empty text.

    `server` is the state of its server, or SILENT if heartbeats are overdue.
    """
    if server is None or state not in states.LIVE:
        return ""
    return "server silent" if server == "SILENT" else "server lost" if server in LOST_HOLDERS else ""
