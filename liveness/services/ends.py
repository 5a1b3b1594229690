"""Record the end of a server. Its machine reports that none of its processes runs any more."""

from typing import Any
from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from liveness import states
from liveness.errors import HeartbeatAfterBoot
from liveness.models import Server
from liveness.services import transitions
from liveness.services.heartbeats import lock_server
from liveness.services.tokens import ServerToken
from liveness.sql import sql
from liveness.states import Mover, ServerState

REASON = "the agent's process ended without reporting; nothing of it runs any more"


@retried_atomic
def record_end(token: ServerToken, reason: str = REASON, uptime: float | None = None) -> Server:
    """Mark a server as ended and return its row. A repeated report changes nothing.

    `uptime` is the time in seconds since the machine booted. It is None if the server ran after that boot. Raise
    ServerUnknown, TokenRevoked, or HeartbeatAfterBoot if the server sent a heartbeat after that boot.
    """
    server = lock_server(token)
    if server.ended_at is None:
        if uptime is not None:
            refuse_heartbeat_after_boot(server.pk, uptime)
        Server.objects.filter(pk=server.pk).update(ended_at=ClockTimestamp())
        state = ServerState(server.state)
        if (end := states.state_after_end(state)) != state:
            transitions.change_state(server, end, Mover.SERVER, actor="server", reason=reason)
    return server


def refuse_heartbeat_after_boot(server: UUID, uptime: float) -> None:
    """Raise HeartbeatAfterBoot if the server sent a heartbeat after the machine that reports its end had booted.

    That machine booted `uptime` seconds ago. The server may still run on another machine. For example, its disk was
    cloned, and the clone reports the end of the original.
    """
    row: Any = sql.read_heartbeat_age.fetch_row(server=server)
    if row.age is not None and row.age < uptime:
        raise HeartbeatAfterBoot(
            f"The last heartbeat came {row.age:.1f} s ago, but this machine has been up for {uptime:.1f} s: "
            "the server may still run elsewhere."
        )
