"""A server is heard. The beat itself is `record_beats`; here is what happens when it says something new."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from django.db import InterfaceError, OperationalError, transaction

from controlplane.core.problems import Problem
from controlplane.core.transactions import unringed
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

SAID = states.said_by_servers()


@dataclass(frozen=True)
class Beat:
    """What a server says in a heartbeat; `schedulable` False cordons it, by itself and with a reason.

    A `witness` of our own proves that heartbeats of others can get in: it came the way that theirs come when they list
    attempts, which touches all that heartbeats touch.
    """

    state: ServerState | None = None
    metrics: dict[str, Any] | None = None
    schedulable: bool | None = None
    reason: str = ""
    witness: bool = False

    def params(self) -> dict[str, Any]:
        metrics = None if self.metrics is None else orjson.dumps(self.metrics).decode()
        return {
            "metrics": metrics,
            "schedulable": self.schedulable,
            "reason": self.reason,
            "witness": self.witness,
        }


def beat_once(token: ServerToken, beat: Beat, *, is_part: bool = False) -> Any | None:
    """The plain beat of a server: its row as it is now, or None when it may not beat. May be part of a transaction."""
    with results.taken() as counts:
        return sql.row("record_server_heartbeat", server=token.server, version=token.version, **beat.params(), **counts)


@unringed
def record(
    token: ServerToken,
    beat: Beat,
    once: Callable[..., Any | None] = beat_once,
    reactivated: Callable[[Server], None] = lambda server: None,
) -> Any:
    """Hear a server: its row as it is after the beat. One round trip unless it changes its state.

    `once` is the statement of the beat; `reactivated` is called, in the same transaction, for a server that
    comes back under REACTIVATE_ON_HEARTBEAT. Raises ServerUnknown, TokenRevoked, ServerDisconnected,
    ServerNotRunning, or IllegalTransition, in which case the beat still counts.
    """
    try:
        heard = hear(token, beat, once, reactivated)
    except Problem as refusal:
        results.count(refusal.code)
        raise
    except (OperationalError, InterfaceError):
        results.count(UNAVAILABLE)
        raise
    results.count(ACCEPTED)
    return heard


def hear(
    token: ServerToken,
    beat: Beat,
    once: Callable[..., Any | None],
    reactivated: Callable[[Server], None],
) -> Any:
    heard = once(token, beat)
    if heard is not None and (beat.state is None or (beat.state == heard.state and beat.state in SAID)):
        return heard
    with transaction.atomic():
        state = change(token, beat, reactivated)
        if heard is None:
            # It may beat now that it is TERMINATING or reactivated; in the same transaction, so that no check finds it
            # silent in between. An ended server is answered but moves no clock.
            heard = once(token, beat, is_part=True) or sql.row("read_ended_server", server=token.server)
        else:
            heard = heard._replace(fence_after=sql.rows("read_fence", server=token.server)[0].fence_after)
    if heard is None:
        raise ServerUnknown
    return heard._replace(state=state)


def change(token: ServerToken, beat: Beat, reactivated: Callable[[Server], None]) -> str:
    """Take the server where its beat says it is; the state it is in then."""
    server = locked(token)
    state, wanted = ServerState(server.state), beat.state
    if server.reactivate_on_heartbeat and state in states.REACTIVATED and wanted in {None, *states.ALIVE}:
        transitions.move(server, ServerState.RUNNING, Mover.SERVER, actor="server", reason="heard again: reactivated")
        reactivated(server)
        return ServerState.RUNNING
    if state in states.GONE and not ended_as(server, wanted):
        raise ServerNotRunning
    if state == ServerState.DISCONNECTED and wanted not in {ServerState.TERMINATING, *states.FINAL}:
        raise ServerDisconnected
    if wanted is not None and wanted not in SAID:
        raise IllegalTransition(f"A server cannot say of itself that it is {wanted}.", state=state.value)
    if wanted is None or wanted == state or state in states.GONE:
        return state
    if wanted in states.FINAL and ServerState.TERMINATING in states.TRANSITIONS[state]:
        # The beat that said TERMINATING was lost: two events all the same.
        transitions.move(server, ServerState.TERMINATING, Mover.SERVER, actor="server", reason="on its way to its end")
    transitions.move(server, wanted, Mover.SERVER, actor="server", reason=beat.reason)
    return wanted


def locked(token: ServerToken) -> Server:
    """The server of a token, its row locked. Raises ServerUnknown or TokenRevoked."""
    server = Server.objects.select_for_update(no_key=True).filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register anew.")
    return server


def ended_as(server: Server, state: ServerState | None) -> bool:
    """Whether the server itself reported this final state: then its last beat is merely repeated."""
    if state not in states.FINAL:
        return False
    return ServerEvent.objects.filter(server_id=server.pk, to_state=state, actor="server").exists()
