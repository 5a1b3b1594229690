"""The metrics that a worker sends with its heartbeats."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from controlplane.agent.processes.process_metrics import MIB, ProcessMetrics
from controlplane.agent.processes.supervisor import Supervisor


class WorkerMetrics:
    """Read the load of this machine, of this process and of the tasks. Create and read it in the same process."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor, self._process = supervisor, ProcessMetrics()

    def read(self, running: Collection[str], claimed: int) -> dict[str, Any]:
        """Return the metrics. `running` are the attempts whose code runs, `claimed` is the number of the others."""
        views = [self._supervisor.look_at(attempt) for attempt in running]
        return {
            **self._process.read(),
            "load_1m": round(os.getloadavg()[0], 2),
            "tasks_cpu_seconds": round(sum(view.cpu_seconds for view in views if view), 1),
            "tasks_memory_mib": round(sum(view.memory_bytes for view in views if view) / MIB, 1),
            "running": len(running),
            "claimed": claimed,
        }
