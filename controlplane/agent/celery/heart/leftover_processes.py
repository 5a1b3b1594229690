"""Leftover processes of a worker that has ended. A variable in their environment identifies them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import psutil

from controlplane.agent.celery.options import INSTANCE_VARIABLE

ROUNDS = 5  # rounds; processes that fork faster survive


def kill_leftovers(instance: str, session: int, pids: Iterable[int], spare: int) -> int:
    """Kill the pool processes `pids` in the worker's session, and all processes with its variable. Return their number.

    `spare` is the worker's own process id, because the worker may have restarted itself under it (execv). The processes
    of the pool do not have the variable, but on Linux they end with their parent.
    """
    killed = 0
    for pid in pids:
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                psutil.Process(pid).kill()
                killed += 1
    for _ in range(ROUNDS):
        processes = [process for process in _processes_of(instance) if process.pid != spare]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        killed += len(processes)
        if not processes:
            break
    return killed


def _processes_of(instance: str) -> Iterable[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(INSTANCE_VARIABLE) == instance:
                yield process


def is_stopped(pid: int) -> bool:
    """Return True if SIGSTOP or a debugger has stopped the process. Return False if it has ended."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def is_child(pid: int, parent: int) -> bool:
    """Return True if the process is a child of `parent` and has not ended."""
    try:
        process = psutil.Process(pid)
        return process.ppid() == parent and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
