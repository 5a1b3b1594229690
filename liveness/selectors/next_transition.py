"""Where a server goes next by itself, when, and why."""

from datetime import timedelta
from typing import Any, NamedTuple

from liveness import states
from liveness.conf import conf
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState

UNCHECKED_AFTER = 2
"""Intervals without a liveness check after which no server's silence counts: observed time has stood still by then."""


def has_work_to_recover(server: TimedServer) -> bool:
    """Whether a server, with the attempts it holds, `live`, or their number, `held`, has something to recover."""
    return bool(server.live if hasattr(server, "live") else server.held)


class ExpectedLoss(NamedTuple):
    """What makes an alive server DISCONNECTED if no heartbeat comes any more; and when, if that is known."""

    by: str
    """nobody: checks are switched off. check_to_come: none runs, and observed time stands still. brake, from `seconds`
    on some at each check. next_check: it is due. silence: in so many seconds."""
    seconds: float | None = None


def expected_loss(server: TimedServer) -> ExpectedLoss:
    """What is to be expected of an alive server's silence: no moment is named that nobody would keep."""
    due = server.overdue_in
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
    """Where a server as `servers_with_timing()` has it, with what it holds, goes next by itself, when, and why.

    None: nowhere.
    """

    def transition_to(to: ServerState, seconds: float | None, reason: str) -> dict[str, Any]:
        at = None if seconds is None else server.now + timedelta(seconds=max(0, seconds))
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
        return transition_to(ServerState.DISCONNECTED, server.overdue_in, "unless a heartbeat arrives before")
    if server.state == ServerState.TERMINATING and server.lost_in > 0:
        return transition_to(ServerState.NOT_RUNNING, server.lost_in, "unless it ends before, or is heard")
    if not has_work_to_recover(server):
        return transition_to(ServerState.NOT_RUNNING, 0, "it holds nothing")
    if server.moves_in is None:
        return transition_to(ServerState.NOT_RUNNING, 0, "its running attempts stay with it")
    return transition_to(ServerState.NOT_RUNNING, server.moves_in, "in the check after its attempts have moved")
