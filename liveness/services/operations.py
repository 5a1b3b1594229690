"""Actions of operators on servers.

Each action has a note and writes exactly one event. It raises NoSuchServer, or a Problem with status 409 if it does not
apply; then it changes nothing. Only `disconnect_server` makes a server count as lost.
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
from liveness.services.action_events import OPERATOR, ActionSubject, record_action
from liveness.states import Mover, ServerState

NO_CORDON: dict[str, Any] = {"cordoned_by": None, "cordon_reason": "", "cordon_until": None}
NO_DRAIN: dict[str, Any] = {"drain_deadline": None, "drain_until_observed": None, "drain_held": None}


@retried_atomic
def cordon_server(server: UUID, by: str, note: str, duration: float | None = None) -> None:
    """Give a server no new work; its present work continues.

    An operator's cordon replaces a cordon that the server set itself. The first liveness check after `duration` seconds
    lifts it. None means that only an operator lifts it.
    """
    row = lock_server(server, ensure_may_cordon)
    Server.objects.filter(pk=row.pk).update(cordoned_by=by, cordon_reason=note, cordon_until=end_of(duration))
    note_action(row, "cordon", by, note)


@retried_atomic
def uncordon_server(server: UUID, by: str, note: str) -> None:
    """Give a server work again, even if it cordoned itself. If its own probe still fails, it cordons itself again."""
    row = lock_server(server, ensure_may_uncordon)
    Server.objects.filter(pk=row.pk).update(**NO_CORDON)
    note_action(row, "uncordon", by, note)


@retried_atomic
def drain_server(
    server: UUID, by: str, note: str, deadline: float | None = None, duration: float | None = None
) -> None:
    """Cordon a server and give it `deadline` seconds (default: its grace period) to finish its attempts.

    After the deadline the server gives the rest back. Attempts that it still holds one timeout later are recovered
    (`recover_attempts`). The first liveness check after `duration` seconds lifts the drain and the cordon; None means
    that an operator lifts them.
    """
    row = lock_server(server, ensure_may_drain)
    seconds = row.termination_grace_period if deadline is None else deadline
    Server.objects.filter(pk=row.pk).update(
        cordoned_by=by,
        cordon_reason=note,
        cordon_until=end_of(duration),
        drain_deadline=ClockTimestamp() + timedelta(seconds=seconds),
        drain_until_observed=ObservedNow() + seconds,
        # `attempts` is the related name of a foreign key of the app jobs, which this app must not import.
        drain_held=row.attempts.filter(finished_at=None).count(),
    )
    note_action(row, "drain", by, note)


@retried_atomic
def undrain_server(server: UUID, by: str, note: str) -> None:
    """Lift the drain and the cordon of a server, so that it gets work again."""
    row = lock_server(server, ensure_may_undrain)
    Server.objects.filter(pk=row.pk).update(**NO_CORDON, **NO_DRAIN)
    note_action(row, "undrain", by, note)


@retried_atomic
def disconnect_server(server: UUID, by: str, note: str) -> None:
    """Disconnect a server, as if it had been silent for its timeout. `recover_attempts` recovers its jobs later."""
    row = lock_server(server, ensure_may_disconnect)
    transitions.change_state(row, ServerState.DISCONNECTED, Mover.OPERATOR, actor=by, reason=note)


def end_of(duration: float | None) -> Any:
    """Return the time when the duration ends, or None if it never ends."""
    return None if duration is None else ClockTimestamp() + timedelta(seconds=duration)


def ensure_may_cordon(server: Server) -> None:
    ensure_is_alive(server)
    if server.cordoned_by is not None and server.cordoned_by.startswith(OPERATOR):
        raise AlreadyCordoned(f"The server is already cordoned by {server.cordoned_by}.", state=server.state)


def ensure_may_uncordon(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is not None:
        raise ServerDraining("The server is being drained. Undrain it, which also uncordons it.", state=server.state)
    if server.cordoned_by is None:
        raise NotCordoned(state=server.state)


def ensure_may_drain(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is not None:
        raise ServerDraining("The server is already being drained. Undrain it first.", state=server.state)


def ensure_may_undrain(server: Server) -> None:
    ensure_is_alive(server)
    if server.drain_deadline is None:
        raise NotDraining(state=server.state)


def ensure_may_disconnect(server: Server) -> None:
    if not states.is_legal_transition(ServerState(server.state), ServerState.DISCONNECTED, Mover.OPERATOR):
        raise IllegalTransition(f"A server that is {server.state} cannot become DISCONNECTED.", state=server.state)


def ensure_is_alive(server: Server) -> None:
    if server.state not in states.ALIVE:
        raise ServerNotAlive(f"The server is {server.state}, so it gets no work.", state=server.state)


def lock_server(server: UUID, guard: Callable[[Server], None]) -> Server:
    """Lock and return a server. Raise NoSuchServer, or the Problem of `guard` if the action does not apply."""
    row = Server.objects.select_for_update(no_key=True).filter(pk=server).first()
    if row is None:
        raise NoSuchServer
    guard(row)
    return row


def note_action(server: Server, action: str, by: str, note: str, **of: object) -> None:
    """Write the event of an action that changes no state. `of` sets more columns of the event."""
    record_action(
        action, by, note, ActionSubject(states.Subject.SERVER, server.pk, server.name),
        server_id=server.pk, server_name=server.name, from_state=server.state, to_state=server.state, **of,
    )  # fmt: skip
