"""Wake granian's main process after it was stopped and continued.

A signal that arrives while a process is stopped goes to any of its threads. If that is not the main thread, Python runs
the handler when the main thread next wakes. But granian's main thread sleeps until a child ends, so it would never act
on a SIGTERM that arrived while it was stopped. SIGHUP wakes it. If it got a SIGTERM, it ends. Otherwise it replaces its
workers by new ones, without refusing a call.
"""

import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import structlog

log = structlog.get_logger()

LOOK_INTERVAL = 0.25
"""Seconds between two looks at the state of the parent process."""
SETTLED_AFTER = 0.5
"""Seconds that the parent has to act by itself after it was continued."""
STOPPED = ("T", "t")


def watch_parent() -> None:
    """Watch the process that started this one, if that is granian. Call this in the main thread of a web process."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None or parent.pid != os.getppid() or not Path("/proc/self/stat").exists():
        return
    went_on = threading.Event()
    former = signal.getsignal(signal.SIGCONT)

    def note_going_on(number: int, frame: FrameType | None) -> None:
        went_on.set()  # this process was stopped, so its parent probably was, too
        if callable(former):
            former(number, frame)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCONT, note_going_on)
    threading.Thread(target=look_after, args=(parent.pid, went_on), name="resumption", daemon=True).start()


def look_after(parent: int, went_on: threading.Event) -> None:
    was_stopped = False
    while os.getppid() == parent:
        went_on.wait(LOOK_INTERVAL)
        is_stopped = read_state(parent) in STOPPED
        if (was_stopped or went_on.is_set()) and not is_stopped:
            went_on.clear()
            time.sleep(SETTLED_AFTER)
            if os.getppid() == parent:
                log.warning(
                    "The web server was stopped and continued: sending SIGHUP so that it handles missed signals"
                )
                with suppress(ProcessLookupError):
                    os.kill(parent, signal.SIGHUP)
        was_stopped = is_stopped


def read_state(process: int) -> str:
    """Return the letter of a process's state, as in `ps`, or an empty text if there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
