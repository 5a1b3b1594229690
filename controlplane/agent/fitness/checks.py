"""The checks of a worker's machine together: the probe, the runtimes, and the start of code.

Main thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controlplane.agent.fitness import machine_watch, probe, runtimes
from controlplane.agent.fitness.machine_watch import MachineWatch
from controlplane.agent.fitness.probe import Probe
from controlplane.agent.fitness.runtimes import RuntimeWatch
from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.supervisor import Supervisor


class FitnessChecks:
    """Decide whether this machine may get work.

    `runtime_names` are the runtimes found at the start. `command` is the probe, or None. `interval` and `timeout` are
    those of the probe, in seconds. `on_change` is called when the self-cordon changes.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        folder: Folder,
        environment: Mapping[str, str],
        runtime_names: Iterable[str],
        command: str | None,
        interval: float,
        timeout: float,
        on_change: Callable[[], None],
    ) -> None:
        self.cordon = SelfCordon()
        self.machine = MachineWatch(supervisor, folder, environment, self.cordon, on_change)
        self._probe = Probe(command, interval, timeout, supervisor, environment, self.cordon, on_change)
        self._runtimes = RuntimeWatch(runtime_names, supervisor, environment, self.cordon, on_change)

    @property
    def are_passing(self) -> bool:
        return self._probe.is_passing and not self._runtimes.missing and not self.machine.reason

    @property
    def steps(self) -> list[Callable[[], None]]:
        """The functions to call in each turn of the main loop. An error in one must not stop the others."""
        return [self._runtimes.look, self._probe.advance, self.machine.advance]

    def next_steps_at(self) -> list[float | None]:
        """Return when the probe and the machine check are due (monotonic time)."""
        return [self._probe.next_step_at(), self.machine.next_step_at()]

    def owner_of(self, key: str) -> Probe | MachineWatch | RuntimeWatch | None:
        """Return the check that started this child process, or None if it belongs to an attempt."""
        if key == probe.KEY:
            return self._probe
        if key == machine_watch.KEY:
            return self.machine
        return self._runtimes if key.startswith(runtimes.KEY) else None
