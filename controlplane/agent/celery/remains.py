"""The processes of a worker that is gone, found by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import psutil

MARK = "CONTROLPLANE_CELERY_INSTANCE"  # in the environment of everything that a worker starts
ROUNDS = 5  # what forks faster than that is left


def kill_remains(instance: str, session: int, pids: Iterable[int], spare: int) -> int:
    """SIGKILL to the pool's processes `pids` (of the worker's session) and to all that carry the mark; how many.

    `spare`: the worker's own number, under which it may have begun anew (execv). The pool's own carry the environment
    of before the mark, and end with their parent where the system can do that.
    """
    killed = 0
    for pid in pids:
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                psutil.Process(pid).kill()
                killed += 1
    for _ in range(ROUNDS):
        processes = [process for process in _marked(instance) if process.pid != spare]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        killed += len(processes)
        if not processes:
            break
    return killed


def _marked(instance: str) -> Iterable[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARK) == instance:
                yield process


def is_stopped(pid: int) -> bool:
    """By SIGSTOP or a debugger; False when it is gone."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def is_child(pid: int, parent: int) -> bool:
    """Of that process, and not ended."""
    try:
        process = psutil.Process(pid)
        return process.ppid() == parent and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
