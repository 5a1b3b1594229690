"""Change the state of one server. Statements that change many servers have the same guards, in triggers."""

from uuid import UUID

import structlog

from liveness import states
from liveness.errors import IllegalTransition
from liveness.models import Server
from liveness.states import Mover, ServerState

log = structlog.get_logger()


def change_state(server: Server, to: ServerState, mover: Mover, *, actor: str, reason: str) -> None:
    """Change the state of a server whose row the caller has locked. A trigger writes the event.

    Raise IllegalTransition if the table of transitions does not allow it.
    """
    from_ = ServerState(server.state)
    if not states.is_legal_transition(from_, to, mover, reactivates=server.reactivate_on_heartbeat):
        raise IllegalTransition(f"A server that is {from_} cannot become {to}.", state=from_.value)
    Server.objects.filter(pk=server.pk).update(state=to.value, state_actor=actor, state_reason=reason)
    server.state = to.value
    log_transition(server.pk, server.name, from_, to, actor, reason)


def log_transition(server: UUID, name: str, from_: str, to: str, actor: str, reason: str) -> None:
    """Write the log line of a transition."""
    log.info(
        f"Server {name}: {from_} → {to}",
        server=str(server),
        from_state=str(from_),
        to_state=str(to),
        actor=actor,
        reason=reason,
    )
