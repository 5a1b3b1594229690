"""Processes that a killed reaper left behind. The agent is their parent now, and kills them (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Set
from contextlib import suppress

import structlog

from controlplane.agent.processes import reaper

log = structlog.get_logger()
TASKS = "/proc/self/task"
AT_ONCE = 0.02  # seconds for one call: only quick repetition catches a process that forks all the time
PAUSE = 0.001  # seconds between two looks with the same result


class Strays:
    """Find and kill the processes that killed reapers left behind.

    Main thread only. This process may have no other children, and only this class may wait for them.
    """

    def __init__(self) -> None:
        self._known: frozenset[int] = frozenset()
        self._tries = 0  # tries in a row in which no process could be signalled

    @property
    def are_left(self) -> bool:
        return bool(self._known) and self._tries < reaper.KILL_TRIES

    def end(self, own: Set[int]) -> bool:
        """Kill all children of this process except those with a process id in `own`. Return True if none are left.

        Return False if some are left after AT_ONCE seconds.

        Children of a killed process become children of this one, so they are found next. A process that may not be
        signalled (it belongs to another user now) is left alone after some tries, as in the reaper.
        """
        try:
            os.close(os.open(TASKS, os.O_RDONLY))
        except FileNotFoundError:
            return True  # this system does not list children
        except OSError:
            return False  # no file descriptor is free to look for them
        until = time.monotonic() + AT_ONCE
        before: frozenset[int] = frozenset()
        while found := frozenset(reaper.children(os.getpid())) - own:
            was_signalled = sum(reaper.try_to(os.kill, pid, signal.SIGKILL) for pid in found) > 0
            for pid in found:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if not self._known:
                log.warning("Processes outlived their reaper: killed", pids=sorted(found))
            self._known = found
            if time.monotonic() >= until:
                self._tries = 0 if was_signalled else self._tries + 1
                return self._tries >= reaper.KILL_TRIES
            if found == before:
                time.sleep(PAUSE)
            before = found
        self._known, self._tries = frozenset(), 0
        return True
