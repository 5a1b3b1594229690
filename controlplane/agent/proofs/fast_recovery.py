"""All that an agent does for fast recovery: report earlier servers that died, and make its own death provable."""

from __future__ import annotations

from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.options import Options
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.proofs.guard import DeathGuard
from controlplane.agent.proofs.successor import Successor


class FastRecovery:
    """Main thread only. It does nothing if the options switch it off."""

    def __init__(self, options: Options, client: AgentClient) -> None:
        self._options = options
        self._successor: Successor | None = None
        if options.has_fast_recovery:
            self._successor = Successor(options.state, client, options.read_token, options.description)
        self._guard: DeathGuard | None = None

    def report_dead_servers(self, patience: float) -> None:
        """Report earlier servers of this machine whose death can be proved, for at most `patience` seconds."""
        if self._successor:
            self._successor.report_dead_servers(patience)

    def begin(self, server: RegisteredServer, supervisor: Supervisor) -> None:
        """Make the death of this process provable before it claims anything. Watch the servers not reported yet."""
        if self._successor is None:
            return
        self._successor.watch(server.config.timeout + server.config.termination_grace_period)
        if guard := DeathGuard.begin(server, self._options.state, self._options.environment):
            self._guard = guard
            supervisor.server_file = guard.file
            supervisor.other_children = lambda: guard.pids

    def metrics(self) -> dict[str, int]:
        """Return the number of dead servers that this agent found, by result."""
        return self._successor.metrics() if self._successor else {}

    def watch(self) -> None:
        """Start the sentinel again if it was killed, and hand it a new token of the server."""
        if self._guard:
            self._guard.watch()

    def close(self, *, is_end_known: bool) -> None:
        """End with the agent. `is_end_known`: the control plane knows that this server ended."""
        if self._successor:
            self._successor.close()
        if self._guard:
            self._guard.close(is_end_known=is_end_known)
