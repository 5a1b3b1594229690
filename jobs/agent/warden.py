"""A process that outlives the agent by a moment: it kills what the agent leaves behind.

Reads lines on stdin: `+PGID` and `-PGID` (a process group began, has ended), `=UPTIME` or `=` (the fence: kill at
that reading of the uptime clock, never). At the end of the input, which a `kill -9` of the agent brings too, it
SIGKILLs every group that is left. The fence is here as well because a stopped agent (SIGSTOP, a debugger) cannot
watch its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the clock of liveness.agent.fence.uptime
LOOK = 0.5  # seconds: select() does not count time asleep, so look at the clock now and then


class Watch:
    def __init__(self) -> None:
        self.groups: set[int] = set()
        self.fence: float | None = None

    def read(self, line: bytes) -> None:
        sign, rest = line[:1], line[1:].strip()
        if sign == b"+":
            self.groups.add(int(rest))
        elif sign == b"-":
            self.groups.discard(int(rest))
        elif sign == b"=":
            self.fence = float(rest) if rest else None

    def fence_passed(self) -> bool:
        return self.fence is not None and time.clock_gettime(CLOCK) >= self.fence

    def kill(self) -> None:
        for group in self.groups:
            if group > 1:  # killpg(0) and killpg(1) mean something else altogether
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch, pending = Watch(), b""
    while True:
        timeout = None
        if watch.fence is not None:
            timeout = max(0.0, min(LOOK, watch.fence - time.clock_gettime(CLOCK)))
        # Input first: a group may have ended, or the fence moved, just before the deadline.
        if select.select([0], [], [], timeout)[0]:
            data = os.read(0, 65536)
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                watch.read(line)
            if not data:
                watch.kill()
                return
        elif watch.fence_passed():
            watch.kill()
            watch.fence = None  # once: the agent renews it when it is heard again


if __name__ == "__main__":
    main()
