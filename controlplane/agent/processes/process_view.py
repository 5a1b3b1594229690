"""The processes of a task, seen from outside (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from controlplane.agent.processes.reaper import descendants

PROC = Path("/proc")
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
DEAD, STOPPED = "ZX", "Tt"  # states in /proc/PID/stat


@dataclass(frozen=True)
class ProcessView:
    """The states of all processes of a task (one letter each), their CPU time and their resident memory.

    Memory that processes share counts for each of them.
    """

    states: str
    cpu_seconds: float
    memory_bytes: int

    @property
    def may_run(self) -> bool:
        """Return False if all processes are stopped or dead. Return True if nothing is known."""
        return not self.states or any(state not in DEAD + STOPPED for state in self.states)

    def __str__(self) -> str:
        stopped = sum(state in STOPPED for state in self.states)
        zombies = sum(state in DEAD for state in self.states)
        counts = {"alive": len(self.states) - stopped - zombies, "stopped": stopped, "zombie": zombies}
        seen = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{seen or 'no process'}, {self.cpu_seconds:.1f} s of CPU time"


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, or 0 if it has ended."""
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def look_below(root: int) -> ProcessView:
    """Return a view of all descendants of a process."""
    states, ticks, pages = "", 0, 0
    for pid in descendants(root):
        try:
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        states += fields[0]
        ticks += int(fields[11]) + int(fields[12])
        pages += int(fields[21])
    return ProcessView(states, ticks / TICKS, pages * PAGE)
