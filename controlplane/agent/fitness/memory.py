"""The memory of a task with all its processes, and kills by the kernel when memory has run out (Linux)."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane.agent.processes.process_view import resident_bytes
from controlplane.agent.processes.reaper import descendants

UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def parse_size(text: str) -> int:
    """Return the bytes of a size like `512M`, `2G`, `1.5GiB` or plain bytes. Raise ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or (size := int(float(match[1]) * UNITS[match[2].upper()])) <= 0:
        raise ValueError(f"{text!r} is not a size: write it like 512M or 2G")
    return size


def format_size(size: int) -> str:
    return f"{size / UNITS['M']:.0f} MiB"


def size_over_limit(root: int, limit: int) -> int | None:
    """Return the memory in bytes of all descendants of a process if it is above `limit`, otherwise None."""
    pids = descendants(root)
    # Shared memory must count once. That is expensive to read, so first check the sum in which it counts often.
    if sum(map(resident_bytes, pids)) <= limit:
        return None
    size = sum(map(_proportional_bytes, pids))
    return size if size > limit else None


def _proportional_bytes(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return resident_bytes(pid)  # another user's process, or an older kernel
    match = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


class KernelKills:
    """Count processes that the kernel killed because memory had run out.

    Count in this process's control group if that is known, otherwise on the whole machine.
    """

    def __init__(self) -> None:
        self._places = _counters()
        self._last = self._before = self._count()

    def look(self) -> None:
        """Record the count. Call this regularly: kills before the last look but one do not explain an end now."""
        self._before, self._last = self._last, self._count()

    def has_killed(self) -> bool:
        """Return True if there was a kill recently."""
        return self._count() > self._before

    def _count(self) -> int:
        for place in self._places:
            try:
                match = re.search(r"^oom_kill (\d+)$", place.read_text(), re.MULTILINE)
            except OSError:
                continue
            if match:
                return int(match[1])
        return 0


def _counters() -> list[Path]:
    places = [PROC / "vmstat"]
    try:
        own = re.search(r"^0::(/.*)$", (PROC / "self/cgroup").read_text(), re.MULTILINE)
    except OSError:
        own = None
    if own:
        places.insert(0, CGROUPS / own[1].lstrip("/") / "memory.events")
    return places
