"""Metrics of a server's own process. Heartbeats send them."""

from __future__ import annotations

import psutil

MIB = 1024 * 1024


class ProcessMetrics:
    """CPU use since the last reading (per cent of one core) and resident memory of this process.

    Create and read it in the same process.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first reading is always 0

    def read(self) -> dict[str, float]:
        return {
            "process_cpu_percent": self._process.cpu_percent(),
            "process_memory_mib": round(self._process.memory_info().rss / MIB, 1),
        }
