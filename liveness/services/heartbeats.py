"""Record heartbeats of servers.

The SQL step `record_beats` records the heartbeat itself; this module applies the state that a heartbeat reports.
"""

from dataclasses import dataclass
from typing import Any

from controlplane.core.database import transaction
from controlplane.core.json_bodies import write_json
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
from liveness.sql import OWN_EVENTS_LIMIT, sql
from liveness.states import Mover, ServerState

REPORTED_STATES = states.server_reported_states()


@dataclass(frozen=True)
class ServerHeartbeat:
    """Content of a heartbeat. If `schedulable` is False, the server cordons itself for the reason `reason`.

    `witness` marks a heartbeat of the control plane itself that proves that heartbeats can arrive. It takes the same
    path as a worker's heartbeat with attempts, so it arrives only if heartbeats of workers can arrive.
    """

    state: ServerState | None = None
    metrics: dict[str, Any] | None = None
    schedulable: bool | None = None
    reason: str = ""
    witness: bool = False

    def statement_parameters(self) -> dict[str, Any]:
        metrics = None if self.metrics is None else write_json(self.metrics).decode()
        return {
            "metrics": metrics,
            "schedulable": self.schedulable,
            "reason": self.reason,
            "witness": self.witness,
        }


@dataclass(frozen=True)
class ReportedState:
    """State of a server after the state that its heartbeat reported was applied."""

    state: ServerState
    is_reactivated: bool = False
    """The server was lost and is RUNNING again, under REACTIVATE_ON_HEARTBEAT. The caller ends the attempts that it no
    longer holds."""


@retry_from_start
def record_heartbeat(token: ServerToken, beat: ServerHeartbeat) -> Any:
    """Record the heartbeat of a server that holds no attempts, and return its row.

    This needs one round trip unless the server changes its state. Raise ServerUnknown, TokenRevoked,
    ServerDisconnected, ServerNotRunning or IllegalTransition; after an IllegalTransition the heartbeat still counts.
    Heartbeats of workers are recorded by jobs/services/heartbeats.py.
    """
    with results.count_answer():
        row = record_beat(token, beat)
        if says_nothing_new(beat, row):
            return row
        with transaction.atomic():
            reported = apply_reported_state(token, beat)
            return complete_changed_row(token, record_beat(token, beat) if row is None else row, reported)


def record_beat(token: ServerToken, beat: ServerHeartbeat) -> Any | None:
    """Record a heartbeat without its reported state. Return the server's row, or None if it may send no heartbeat."""
    with results.take_due_counts() as counts:
        return sql.record_server_heartbeat.fetch_row(
            server=token.server,
            version=token.version,
            **beat.statement_parameters(),
            **counts,
        )


def says_nothing_new(beat: ServerHeartbeat, row: Any | None) -> bool:
    """Return True if a heartbeat does not change the state of its server. `row` is the result of `record_beat`."""
    return row is not None and (beat.state is None or (beat.state == row.state and beat.state in REPORTED_STATES))


def apply_reported_state(token: ServerToken, beat: ServerHeartbeat) -> ReportedState:
    """Change the server to the state that its heartbeat reports, in the caller's transaction.

    Once it is TERMINATING or reactivated, a silent server may send heartbeats again. The caller records this heartbeat
    in the same transaction, so that no liveness check finds the server silent in between.
    """
    server = lock_server(token)
    state, wanted = ServerState(server.state), beat.state
    if server.ended_at is not None:
        raise ServerNotRunning("The machine of this server reported that none of its processes runs any more.")
    if server.reactivate_on_heartbeat and state in states.REACTIVATABLE and wanted in {None, *states.ALIVE}:
        transitions.change_state(
            server, ServerState.RUNNING, Mover.SERVER, actor="server", reason="reactivated by a heartbeat"
        )
        return ReportedState(ServerState.RUNNING, is_reactivated=True)
    if state in states.RETIRED and not has_ended_as(server, wanted):
        raise ServerNotRunning
    if state == ServerState.DISCONNECTED and wanted not in {ServerState.TERMINATING, *states.TERMINATED}:
        raise ServerDisconnected
    if wanted is not None and wanted not in REPORTED_STATES:
        raise IllegalTransition(f"A server cannot report the state {wanted}.", state=state.value)
    if wanted is None or wanted == state or state in states.RETIRED:
        return ReportedState(state)
    if {wanted, state} == states.REVERSIBLE and changes_too_often(server):
        return ReportedState(state)
    if wanted in states.TERMINATED and ServerState.TERMINATING in states.TRANSITIONS[state]:
        # The heartbeat that reported TERMINATING was lost. Both transitions still get an event.
        transitions.change_state(
            server, ServerState.TERMINATING, Mover.SERVER, actor="server", reason="it is shutting down"
        )
    transitions.change_state(server, wanted, Mover.SERVER, actor="server", reason=beat.reason)
    return ReportedState(wanted)


def complete_changed_row(token: ServerToken, row: Any | None, reported: ReportedState) -> Any:
    """Return the row of a server whose state has changed, with the fence of its new state.

    A server that has ended (`row` is None) gets a response, but its heartbeat time does not change.
    """
    if row is None:
        row = sql.read_ended_server.fetch_row(server=token.server)
        if row is None:
            raise ServerUnknown
        return row._replace(state=reported.state)
    [fence] = sql.read_fence.fetch_rows(server=token.server)
    return row._replace(state=reported.state, fence_after=fence.fence_after)


def lock_server(token: ServerToken) -> Server:
    """Lock and return the server of a token. Raise ServerUnknown or TokenRevoked."""
    server = Server.objects.select_for_update(no_key=True).filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("The server token was revoked. Register again.")
    return server


def changes_too_often(server: Server) -> bool:
    """Return True if the server caused too many events within the last hour. It then keeps its state."""
    return sql.count_own_events.fetch_only_row(server=server.pk).events >= OWN_EVENTS_LIMIT


def has_ended_as(server: Server, state: ServerState | None) -> bool:
    """Return True if the server already reported this final state, so that this heartbeat only repeats the last one."""
    if state not in states.TERMINATED:
        return False
    return ServerEvent.objects.filter(server_id=server.pk, to_state=state, actor="server").exists()
