"""Metrics of a server's own process and of its machine. Heartbeats send them."""

from __future__ import annotations

import psutil

MIB = 1024 * 1024


class MachineMetrics:
    """CPU use since the last reading, and memory use, in per cent of the machine."""

    def __init__(self) -> None:
        # `psutil.cpu_percent` compares readings of the same thread, so the first one of each thread is 0.
        self._busy, self._total = read_cpu_seconds()

    def read(self) -> dict[str, float]:
        busy, total = read_cpu_seconds()
        share = (busy - self._busy) / max(total - self._total, 0.01)
        self._busy, self._total = busy, total
        return {
            "cpu_percent": round(100 * min(max(share, 0.0), 1.0), 1),
            "memory_percent": psutil.virtual_memory().percent,
        }


def read_cpu_seconds() -> tuple[float, float]:
    """Return the seconds for which the processors of this machine were busy, and all their seconds, since its start."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # they are in user and nice
    return total - times.idle - getattr(times, "iowait", 0.0), total


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
