"""What an operator does to servers: each with a note, and with exactly one event.

None of it counts as dead, but for `disconnect_server`. Each raises NoSuchServer, or the 409 that says why it does not
apply now; nothing is changed then.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp, ObservedNow
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.errors import (
    AlreadyCordoned,
    IllegalTransition,
    NoSuchServer,
    NotCordoned,
    NotDraining,
    ServerDraining,
    ServerNotAlive,
)
from liveness.models import Server
from liveness.services import transitions
from liveness.services.action_events import OPERATOR, Subject, record_action
from liveness.states import Mover, ServerState

NO_CORDON: dict[str, Any] = {"cordoned_by": None, "cordon_reason": "", "cordon_until": None}
NO_DRAIN: dict[str, Any] = {"drain_deadline": None, "drain_until_observed": None, "drain_held": None}


@retried_atomic
def cordon_server(server: UUID, by: str, note: str, duration: float | None = None) -> None:
    """It gets no new work; what it holds goes on. An operator's cordon takes the place of the server's own. After so
    many seconds the next liveness check lifts it; None: somebody does."""
    row = lock_server(server, ensure_may_cordon)
    Server.objects.filter(pk=row.pk).update(cordoned_by=by, cordon_reason=note, cordon_until=end_of(duration))
    note_action(row, "cordon", by, note)


@retried_atomic
def uncordon_server(server: UUID, by: str, note: str) -> None:
    """It gets work again, whoever cordoned it; a server whose own probe still fails cordons itself again."""
    row = lock_server(server, ensure_may_uncordon)
    Server.objects.filter(pk=row.pk).update(**NO_CORDON)
    note_action(row, "uncordon", by, note)


@retried_atomic
def drain_server(
    server: UUID, by: str, note: str, deadline: float | None = None, duration: float | None = None
) -> None:
    """Cordon it and give it `deadline` seconds, by default its grace period, to finish what it holds.

    Then it gives back what is left; what it still holds a timeout later is recovered (`recover_attempts`). After
    `duration` seconds the next liveness check lifts the drain and the cordon; None: somebody does.
    """
    row = lock_server(server, ensure_may_drain)
    seconds = row.termination_grace_period if deadline is None else deadline
    Server.objects.filter(pk=row.pk).update(
        cordoned_by=by,
        cordon_reason=note,
        cordon_until=end_of(duration),
        drain_deadline=ClockTimestamp() + timedelta(seconds=seconds),
        drain_until_observed=ObservedNow() + seconds,
        # By the name of the jobs' foreign key: the one thing known here of what servers hold.
        drain_held=row.attempts.filter(finished_at=None).count(),
    )
    note_action(row, "drain", by, note)


@retried_atomic
def undrain_server(server: UUID, by: str, note: str) -> None:
    """It gets work again: the drain and the cordon are lifted."""
    row = lock_server(server, ensure_may_undrain)
    Server.objects.filter(pk=row.pk).update(**NO_CORDON, **NO_DRAIN)
    note_action(row, "undrain", by, note)


@retried_atomic
def disconnect_server(server: UUID, by: str, note: str) -> None:
    """It counts as lost, as if it had been silent for its timeout; `recover_attempts` says when its jobs move."""
    row = lock_server(server, ensure_may_disconnect)
    transitions.change_state(row, ServerState.DISCONNECTED, Mover.OPERATOR, actor=by, reason=note)


def end_of(duration: float | None) -> Any:
    """Of what lasts for so many seconds; None: for good."""
    return None if duration is None else ClockTimestamp() + timedelta(seconds=duration)


def ensure_may_cordon(server: Server) -> None:
    ensure_is_alive(server)
    if server.cordoned_by is not None and server.cordoned_by.startswith(OPERATOR):
        raise AlreadyCordoned(f"This server is cordoned already, by {server.cordoned_by}.", state=server.state)


def ensure_may_uncordon(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is not None:
        raise ServerDraining("This server is being drained: undrain it, which also uncordons it.", state=server.state)
    if server.cordoned_by is None:
        raise NotCordoned(state=server.state)


def ensure_may_drain(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is not None:
        raise ServerDraining("This server is being drained already; undrain it first.", state=server.state)


def ensure_may_undrain(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is None:
        raise NotDraining(state=server.state)


def ensure_may_disconnect(server: Server) -> None:
    if not states.is_legal_transition(ServerState(server.state), ServerState.DISCONNECTED, Mover.OPERATOR):
        raise IllegalTransition(f"A server that is {server.state} cannot become DISCONNECTED.", state=server.state)


def ensure_is_alive(server: Server) -> None:
    if server.state not in states.ALIVE:
        raise ServerNotAlive(f"This server is {server.state}, not alive: it gets no work anyway.", state=server.state)


def lock_server(server: UUID, guard: Callable[[Server], None]) -> Server:
    """The server, its row locked, if that may be done to it now."""
    row = Server.objects.select_for_update(no_key=True).filter(pk=server).first()
    if row is None:
        raise NoSuchServer
    guard(row)
    return row


def note_action(server: Server, action: str, by: str, note: str) -> None:
    """The event of an action that changes no state."""
    record_action(
        action, by, note, Subject(states.Subject.SERVER, server.pk, server.name),
        server_id=server.pk, server_name=server.name, from_state=server.state, to_state=server.state,
    )  # fmt: skip
