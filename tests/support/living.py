"""Job code that records how long it lives.

It writes lines with the uptime, the attempt and the process id to a file.
"""

from __future__ import annotations

import os
import signal
import time

from controlplane.agent import context

TICK = 0.005  # seconds


def live(path: str) -> None:
    """Run in two processes until both are killed. In later attempts, begin and end at once.

    The second process is a grandchild in its own session that ignores SIGTERM and starts no program.
    """
    attempt = context.attempt
    note(path, attempt, "begin")
    if attempt > 1:
        note(path, attempt, "end")
        return
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        note(path, attempt, "lives")
        time.sleep(TICK)


def note(path: str, attempt: int, what: str) -> None:
    with open(path, "a") as file:
        file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)} {attempt} {what} {os.getpid()}\n")
