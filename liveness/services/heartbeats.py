"""A server is heard. The heartbeat itself is `record_beats`; here is what happens when it says something new."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from django.db import InterfaceError, OperationalError, transaction

from controlplane.core.problems import Problem
from controlplane.core.transactions import retry_deadlocks
from liveness import states
from liveness.errors import (
    IllegalTransition,
    ServerDisconnected,
    ServerNotRunning,
    ServerUnknown,
    TokenRevoked,
)
from liveness.models import Server, ServerEvent
from liveness.services import transitions
from liveness.services.results import ACCEPTED, UNAVAILABLE, results
from liveness.services.tokens import ServerToken
from liveness.sql import sql
from liveness.states import Mover, ServerState

REPORTED_STATES = states.server_reported_states()


@dataclass(frozen=True)
class ServerHeartbeat:
    """What a server says in a heartbeat; `schedulable` False cordons it, by itself and with a reason.

    A `witness` of our own proves that heartbeats of others can get in: it came the way that theirs come when they list
    attempts, which touches all that heartbeats touch.
    """

    state: ServerState | None = None
    metrics: dict[str, Any] | None = None
    schedulable: bool | None = None
    reason: str = ""
    witness: bool = False

    def statement_parameters(self) -> dict[str, Any]:
        metrics = None if self.metrics is None else orjson.dumps(self.metrics).decode()
        return {
            "metrics": metrics,
            "schedulable": self.schedulable,
            "reason": self.reason,
            "witness": self.witness,
        }


def record_beat(token: ServerToken, beat: ServerHeartbeat, *, is_part: bool = False) -> Any | None:
    """The plain beat of a server: its row as it is now, or None when it may not beat. May be part of a transaction."""
    with results.take_due_counts() as counts:
        return sql.fetch_row(
            "record_server_heartbeat",
            server=token.server,
            version=token.version,
            **beat.statement_parameters(),
            **counts,
        )


@retry_deadlocks
def record_heartbeat(
    token: ServerToken,
    beat: ServerHeartbeat,
    record_once: Callable[..., Any | None] = record_beat,
    on_reactivation: Callable[[Server], None] = lambda server: None,
) -> Any:
    """Hear a server: its row as it is after the beat. One round trip unless it changes its state.

    `record_once` is the statement of the beat; `on_reactivation` is called, in the same transaction, for a server that
    comes back under REACTIVATE_ON_HEARTBEAT. Raises ServerUnknown, TokenRevoked, ServerDisconnected,
    ServerNotRunning, or IllegalTransition, in which case the beat still counts.
    """
    try:
        row = apply_heartbeat(token, beat, record_once, on_reactivation)
    except Problem as refusal:
        results.count(refusal.code)
        raise
    except (OperationalError, InterfaceError):
        results.count(UNAVAILABLE)
        raise
    results.count(ACCEPTED)
    return row


def apply_heartbeat(
    token: ServerToken,
    beat: ServerHeartbeat,
    record_once: Callable[..., Any | None],
    on_reactivation: Callable[[Server], None],
) -> Any:
    row = record_once(token, beat)
    if row is not None and (beat.state is None or (beat.state == row.state and beat.state in REPORTED_STATES)):
        return row
    with transaction.atomic():
        state = apply_reported_state(token, beat, on_reactivation)
        if row is None:
            # It may beat now that it is TERMINATING or reactivated; in the same transaction, so that no check finds it
            # silent in between. An ended server is answered but moves no clock.
            row = record_once(token, beat, is_part=True) or sql.fetch_row("read_ended_server", server=token.server)
        else:
            row = row._replace(fence_after=sql.fetch_rows("read_fence", server=token.server)[0].fence_after)
    if row is None:
        raise ServerUnknown
    return row._replace(state=state)


def apply_reported_state(token: ServerToken, beat: ServerHeartbeat, on_reactivation: Callable[[Server], None]) -> str:
    """Take the server where its beat says it is; the state it is in then."""
    server = lock_server(token)
    state, wanted = ServerState(server.state), beat.state
    if server.reactivate_on_heartbeat and state in states.REACTIVATABLE and wanted in {None, *states.ALIVE}:
        transitions.change_state(
            server, ServerState.RUNNING, Mover.SERVER, actor="server", reason="heard again: reactivated"
        )
        on_reactivation(server)
        return ServerState.RUNNING
    if state in states.RETIRED and not has_ended_as(server, wanted):
        raise ServerNotRunning
    if state == ServerState.DISCONNECTED and wanted not in {ServerState.TERMINATING, *states.TERMINATED}:
        raise ServerDisconnected
    if wanted is not None and wanted not in REPORTED_STATES:
        raise IllegalTransition(f"A server cannot say of itself that it is {wanted}.", state=state.value)
    if wanted is None or wanted == state or state in states.RETIRED:
        return state
    if wanted in states.TERMINATED and ServerState.TERMINATING in states.TRANSITIONS[state]:
        # The beat that said TERMINATING was lost: two events all the same.
        transitions.change_state(
            server, ServerState.TERMINATING, Mover.SERVER, actor="server", reason="on its way to its end"
        )
    transitions.change_state(server, wanted, Mover.SERVER, actor="server", reason=beat.reason)
    return wanted


def lock_server(token: ServerToken) -> Server:
    """The server of a token, its row locked. Raises ServerUnknown or TokenRevoked."""
    server = Server.objects.select_for_update(no_key=True).filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register anew.")
    return server


def has_ended_as(server: Server, state: ServerState | None) -> bool:
    """Whether the server itself reported this final state: then its last beat is merely repeated."""
    if state not in states.TERMINATED:
        return False
    return ServerEvent.objects.filter(server_id=server.pk, to_state=state, actor="server").exists()
