"""Next automatic transition of a server: its state, time and reason."""

from typing import Any, NamedTuple

from controlplane.core.bounds import moment_after
from liveness import states
from liveness.conf import conf
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState

UNCHECKED_AFTER = 2
"""Number of check intervals. If no liveness check ran for so long, observed time has certainly stopped."""


def has_work_to_recover(server: TimedServer) -> bool:
    """Return True if a server holds attempts. They are in `live`; without that attribute, `held` is their number."""
    return bool(server.live if hasattr(server, "live") else server.held)


class ExpectedLoss(NamedTuple):
    """Expected loss of an alive server that sends no more heartbeats: its cause, and its time if that is known."""

    by: str
    """One of:

    - `nobody`: LIVENESS["ENABLED"] is False.
    - `check_to_come`: no liveness check runs, so observed time stands still.
    - `brake`: the brake holds the server; after `seconds` each check releases some servers.
    - `next_check`: the server is silent for longer than its timeout.
    - `silence`: its timeout ends in `seconds`.
    """
    seconds: float | None = None


def expected_loss(server: TimedServer) -> ExpectedLoss:
    """Return what happens to an alive server that stays silent. The time is given only if it is certain."""
    due = server.disconnected_in
    if not conf().enabled:
        return ExpectedLoss("nobody")
    if server.check_age is not None and server.check_age > UNCHECKED_AFTER * conf().interval:
        return ExpectedLoss("check_to_come")
    if due > 0:
        return ExpectedLoss("silence", due)
    if server.braked:
        return ExpectedLoss("brake", server.brake_lets_go_in)
    return ExpectedLoss("next_check", 0.0)


def next_transition(server: TimedServer) -> dict[str, Any] | None:
    """Return the next automatic transition of a server: `to`, `at` (None: not known) and `reason`.

    The server comes from `servers_with_timing()` and has `live` or `held`. Return None if no transition follows.
    """

    def transition_to(to: ServerState, seconds: float | None, reason: str) -> dict[str, Any]:
        at = None if seconds is None else moment_after(server.now, max(0, seconds))
        return {"to": to.value, "at": at, "reason": reason}

    if server.state == ServerState.INACTIVE:
        return None
    if server.state == ServerState.NOT_RUNNING:
        return transition_to(ServerState.INACTIVE, 0, "at the next liveness check")
    if server.state in states.ALIVE:
        expected = expected_loss(server)
        if expected.by in ("nobody", "brake"):
            return None
        if expected.by == "check_to_come":
            return transition_to(ServerState.DISCONNECTED, None, "once liveness checks run again")
        return transition_to(ServerState.DISCONNECTED, server.disconnected_in, "unless a heartbeat arrives before")
    if server.state == ServerState.TERMINATING and server.lost_in > 0:
        return transition_to(ServerState.NOT_RUNNING, server.lost_in, "unless it ends or sends a heartbeat before")
    if not has_work_to_recover(server):
        return transition_to(ServerState.NOT_RUNNING, 0, "it holds nothing")
    if server.moves_in is None:
        return transition_to(ServerState.NOT_RUNNING, 0, "its running attempts stay with it")
    return transition_to(ServerState.NOT_RUNNING, server.moves_in, "in the check after its attempts have moved")
