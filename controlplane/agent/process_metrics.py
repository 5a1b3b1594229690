"""What a server says of its own process in its heartbeats."""

from __future__ import annotations

import psutil

MIB = 1024 * 1024


class ProcessMetrics:
    """Of the process that makes this, which is the one to read it: its CPU since the reading before, in per cent of one
    core, and its resident memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first reading is always 0

    def read(self) -> dict[str, float]:
        return {
            "process_cpu_percent": self._process.cpu_percent(),
            "process_memory_mib": round(self._process.memory_info().rss / MIB, 1),
        }
