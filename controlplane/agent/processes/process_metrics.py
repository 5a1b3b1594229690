"""Metrics of a server's own process and of its machine. Heartbeats send them."""

from __future__ import annotations

import psutil

MIB = 1024 * 1024


class MachineMetrics:
    """CPU use since the last reading, and memory use, in per cent of the machine.

    Create and read it in the same process.
    """

    def __init__(self) -> None:
        psutil.cpu_percent()  # the first reading is always 0

    def read(self) -> dict[str, float]:
        return {"cpu_percent": psutil.cpu_percent(), "memory_percent": psutil.virtual_memory().percent}


class ProcessMetrics(MachineMetrics):
    """The metrics of the machine, with the CPU use (per cent of one core) and resident memory of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first reading is always 0

    def read(self) -> dict[str, float]:
        return super().read() | {
            "process_cpu_percent": self._process.cpu_percent(),
            "process_memory_mib": round(self._process.memory_info().rss / MIB, 1),
        }
