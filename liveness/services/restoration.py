"""Correct servers and the clock after the database was restored from a backup."""

from liveness import states
from liveness.models import Server
from liveness.services.transitions import log_transition
from liveness.sql import sql
from liveness.states import ServerState


def lose_servers(by: str, note: str) -> int:
    """Disconnect all alive servers, in the caller's transaction. Return how many.

    The brake does not hold them, because they are not disconnected for silence.
    """
    alive = list(Server.objects.filter(state__in=states.ALIVE).select_for_update(no_key=True).order_by("pk"))
    reason = note or "the database was restored"
    Server.objects.filter(pk__in=[server.pk for server in alive]).update(
        state=ServerState.DISCONNECTED.value, state_actor=by, state_reason=reason
    )
    for server in alive:
        log_transition(server.pk, server.name, server.state, ServerState.DISCONNECTED, by, reason)
    return len(alive)


def move_clock() -> None:
    """Stop observed time until a check finds that heartbeats arrive."""
    sql.move_clock.fetch_rows()
