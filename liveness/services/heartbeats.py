"""A server is heard. The heartbeat itself is `record_beats`; here is what happens when it says something new."""

from dataclasses import dataclass
from typing import Any

import orjson

from controlplane.core.database import transaction
from controlplane.core.transactions import retry_from_start
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
from liveness.services.results import results
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


@dataclass(frozen=True)
class ReportedState:
    """Where a heartbeat that says something new has taken its server."""

    state: ServerState
    is_reactivated: bool = False
    """It was given up and is back, under REACTIVATE_ON_HEARTBEAT: whoever keeps what it held sees to what is gone."""


@retry_from_start
def record_heartbeat(token: ServerToken, beat: ServerHeartbeat) -> Any:
    """Hear a server that holds no attempts: its row after the beat. One round trip unless it changes its state.

    Raises ServerUnknown, TokenRevoked, ServerDisconnected, ServerNotRunning, or IllegalTransition, in which case the
    beat still counts. A worker is heard alike: jobs/services/heartbeats.py.
    """
    with results.count_answer():
        row = record_beat(token, beat)
        if says_nothing_new(beat, row):
            return row
        with transaction.atomic():
            reported = apply_reported_state(token, beat)
            return complete_changed_row(token, record_beat(token, beat) if row is None else row, reported)


def record_beat(token: ServerToken, beat: ServerHeartbeat) -> Any | None:
    """The plain beat of a server: its row as it is now, or None when it may not beat."""
    with results.take_due_counts() as counts:
        return sql.record_server_heartbeat.fetch_row(
            server=token.server,
            version=token.version,
            **beat.statement_parameters(),
            **counts,
        )


def says_nothing_new(beat: ServerHeartbeat, row: Any | None) -> bool:
    """Whether a beat whose server has this `row` since (None: it may not beat) leaves the server where it is."""
    return row is not None and (beat.state is None or (beat.state == row.state and beat.state in REPORTED_STATES))


def apply_reported_state(token: ServerToken, beat: ServerHeartbeat) -> ReportedState:
    """Take the server where its beat says it is, in the caller's transaction.

    Who was silent may beat now that it is TERMINATING or reactivated: the caller records that in the same transaction,
    so that no check finds it silent in between.
    """
    server = lock_server(token)
    state, wanted = ServerState(server.state), beat.state
    if server.reactivate_on_heartbeat and state in states.REACTIVATABLE and wanted in {None, *states.ALIVE}:
        transitions.change_state(
            server, ServerState.RUNNING, Mover.SERVER, actor="server", reason="heard again: reactivated"
        )
        return ReportedState(ServerState.RUNNING, is_reactivated=True)
    if state in states.RETIRED and not has_ended_as(server, wanted):
        raise ServerNotRunning
    if state == ServerState.DISCONNECTED and wanted not in {ServerState.TERMINATING, *states.TERMINATED}:
        raise ServerDisconnected
    if wanted is not None and wanted not in REPORTED_STATES:
        raise IllegalTransition(f"A server cannot say of itself that it is {wanted}.", state=state.value)
    if wanted is None or wanted == state or state in states.RETIRED:
        return ReportedState(state)
    if wanted in states.TERMINATED and ServerState.TERMINATING in states.TRANSITIONS[state]:
        # The beat that said TERMINATING was lost: two events all the same.
        transitions.change_state(
            server, ServerState.TERMINATING, Mover.SERVER, actor="server", reason="on its way to its end"
        )
    transitions.change_state(server, wanted, Mover.SERVER, actor="server", reason=beat.reason)
    return ReportedState(wanted)


def complete_changed_row(token: ServerToken, row: Any | None, reported: ReportedState) -> Any:
    """The row of a server that was taken elsewhere, with the fence of the state that it is in now.

    An ended server (None) is answered but moves no clock.
    """
    if row is None:
        row = sql.read_ended_server.fetch_row(server=token.server)
        if row is None:
            raise ServerUnknown
        return row._replace(state=reported.state)
    [fence] = sql.read_fence.fetch_rows(server=token.server)
    return row._replace(state=reported.state, fence_after=fence.fence_after)


def lock_server(token: ServerToken) -> Server:
    """The server of a token, its row locked. Raises ServerUnknown or TokenRevoked."""
    server = Server.objects.select_for_update(no_key=True).filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    return server


def has_ended_as(server: Server, state: ServerState | None) -> bool:
    """Whether the server itself reported this final state: then its last beat is merely repeated."""
    if state not in states.TERMINATED:
        return False
    return ServerEvent.objects.filter(server_id=server.pk, to_state=state, actor="server").exists()
