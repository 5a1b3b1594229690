"""Servers and the clock after the database was restored from a backup."""

from liveness import states
from liveness.models import Server
from liveness.services.transitions import log_transition
from liveness.sql import sql
from liveness.states import ServerState


def lose_servers(by: str, note: str) -> int:
    """All that are alive are DISCONNECTED, in the transaction of the caller; how many. The brake holds none: it is no
    silence. The rest have ended, or end already."""
    alive = list(Server.objects.filter(state__in=states.ALIVE).select_for_update(no_key=True).order_by("pk"))
    reason = note or "the database was restored"
    Server.objects.filter(pk__in=[server.pk for server in alive]).update(
        state=ServerState.DISCONNECTED.value, state_actor=by, state_reason=reason
    )
    for server in alive:
        log_transition(server.pk, server.name, server.state, ServerState.DISCONNECTED, by, reason)
    return len(alive)


def move_clock() -> None:
    """Observed time stands until a check finds that heartbeats get in."""
    sql.move_clock.fetch_rows()
