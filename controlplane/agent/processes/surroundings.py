"""The surroundings of code in a pool process: what one attempt could leave behind for the next one (Linux)."""

from __future__ import annotations

import gc
import os
import signal
import stat
import sys
import threading
from contextlib import suppress
from typing import Any

from controlplane.agent.processes import reaper
from controlplane.agent.processes.process_view import resident_bytes

GROWTHS = 3  # attempts in a row after which a growing number of threads or sockets is a leak
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
SIGNALS = sorted(signal.valid_signals())
ENVIRON: Any = os.environ


class Surroundings:
    """State of a pool process that code can change. It is restored after each attempt, or the process is replaced.

    `memory_limit` is in bytes of resident memory; None means no limit.
    """

    def __init__(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._counts: dict[str, int] = {}
        self._growths: dict[str, int] = {}
        self._is_new, self._modules, self._memory_when_new = True, 0, 0
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self.note()
        self._memory_when_new = 0  # until the function of the first attempt is imported

    def note(self) -> None:
        """Record the surroundings before an attempt. Call this after its function was imported."""
        self._folder, self._threads = os.getcwd(), set(threading.enumerate())
        self._environment = dict(ENVIRON._data)
        self._handlers = list(map(signal.getsignal, SIGNALS))
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        if self._is_new or len(sys.modules) != self._modules:  # otherwise nothing has changed since `put_back`
            self._files, self._modules, self._is_new = list_files(), len(sys.modules), False
        if not self._memory_when_new:
            self._memory_when_new = resident_bytes(os.getpid())

    def put_back(self, *, has_failed: bool = False) -> str:
        """Put back what can be put back after an attempt. Return why the process must be replaced, or nothing.

        `has_failed`: the function raised an error. Then its threads may still do the work that a retry does again.
        """
        sys.stdin, sys.stdout, sys.stderr = self._streams
        if ENVIRON._data != self._environment:
            restore_environment(self._environment)
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        os.umask(self._umask)
        problems = (self._restore_folder, self._restore_handlers, find_children, self._find_files, self._find_growth)
        found = next(filter(None, (problem() for problem in problems)), "") or self._find_memory()
        return found or (self._find_threads() if has_failed else "")

    def _find_threads(self) -> str:
        left = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        return f"it failed and left the thread {left[0]}" if left else ""

    def _restore_folder(self) -> str:
        try:
            if os.getcwd() != self._folder:
                os.chdir(self._folder)
        except OSError as error:
            return f"it left its working directory, and {self._folder} cannot be entered: {error.strerror}"
        return ""

    def _restore_handlers(self) -> str:
        handlers = list(map(signal.getsignal, SIGNALS))
        if handlers != self._handlers:
            for number, was, now in zip(SIGNALS, self._handlers, handlers, strict=True):
                if was != now:
                    if was is None:
                        return f"it replaced the handler of signal {number}, which cannot be put back"
                    signal.signal(number, was)
        return ""

    def _find_files(self) -> str:
        files = self._found = list_files()
        if files == self._files:
            return ""
        if any(self._left(files)):
            gc.collect()
            files = self._found = list_files()
        if closed := {number for number in self._files.keys() - files.keys() if is_file(self._files[number][0])}:
            return f"it closed the file descriptor {min(closed)}, which it had not opened"
        if left := list(self._left(files)):
            return f"it left files open: {', '.join(left[:3])}"
        self._files = files
        return ""

    def _left(self, files: dict[int, tuple[int, int, int]]) -> Any:
        """Yield the open files of an attempt that the next one could use. Sockets are tolerated, like connections."""
        for number, (mode, *file) in files.items():
            if is_file(mode):
                before = self._files.get(number)
                if before is None or before[1:] != tuple(file):
                    with suppress(OSError):
                        yield os.readlink(f"/proc/self/fd/{number}")

    def _find_growth(self) -> str:
        counts = {
            "threads": len(os.listdir("/proc/self/task")),
            "sockets": sum(stat.S_ISSOCK(mode) for mode, *_ in self._found.values()),
        }
        for what, count in counts.items():
            # The first attempt starts what stays for all, such as the thread of an error tracker.
            self._growths[what] = self._growths.get(what, 0) + 1 if count > self._counts.get(what, count) else 0
            if self._growths[what] >= GROWTHS:
                return f"its {what} grew in {GROWTHS} attempts in a row, to {count}"
        self._counts = counts
        return ""

    def _find_memory(self) -> str:
        if self._memory_limit is None:
            return ""
        most, new = self._memory_limit, self._memory_when_new
        if new >= most:
            most = new * 5 // 4  # a new process would have as much
        size = resident_bytes(os.getpid())
        if size <= most:
            return ""
        return f"it has {size / 2**20:.0f} MiB of memory; a pool process may keep {most / 2**20:.0f} MiB"


def restore_environment(wanted: dict[bytes, bytes]) -> None:
    """Make the environment equal to `wanted`."""
    for name in set(ENVIRON._data) - set(wanted):
        del ENVIRON[os.fsdecode(name)]
    for name, value in wanted.items():
        if ENVIRON._data.get(name) != value:
            ENVIRON[os.fsdecode(name)] = os.fsdecode(value)


def is_file(mode: int) -> bool:
    """Return False for sockets and devices, which libraries keep open."""
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode)


def list_files() -> dict[int, tuple[int, int, int]]:
    """Return the open files by descriptor: mode, device and inode."""
    files = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of listdir() itself
            status = os.fstat(int(name))
            files[int(name)] = status.st_mode, status.st_dev, status.st_ino
    return files


def find_children() -> str:
    """Return why the process must be replaced if child processes are left, also orphans that the reaper adopted."""
    for pid in (os.getpid(), os.getppid()):
        for child in reaper.children(pid):
            if child == os.getpid():
                continue
            with suppress(ChildProcessError):
                if pid == os.getpid() and os.waitpid(child, os.WNOHANG)[0]:
                    continue  # it has ended
            if is_alive(child):
                return f"it left the child process {child}"
    return ""


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
