"""The process above the code of one attempt. It starts the code, and ends when no process of it is left.

Orphans of the code become children of this process (a subreaper), so `setsid`, `nohup` or a double fork cannot escape.
It kills whatever outlives the first process of the code. It exits with the status of that process.

`python -I -S reaper.py COMMAND CONTROL STATUS [LOCK]`, file descriptors. COMMAND holds, marshalled: argv, env, cwd, the
descriptors for the code alone, the cleanup command, and the path of the attempt's marker.

LOCK is the lock of the server's file (server_file.py). This process holds it until its end, and removes the marker when
no process of the code is left.

CONTROL is read by lines. `=UPTIME` sets the fence: kill all when the uptime clock reads this. `=` removes the fence.
`!` means: kill all now. The end of CONTROL kills all too. It comes even after a `kill -9` of the agent.

STATUS gets the process id of the code, or `!STEP ERRNO TEXT` if the code could not start (STEP is `fork`, `cwd` or
`exec`). When no process is left and there is a cleanup, STATUS gets `~`, or `~!` if the code was killed here. The
output of the cleanup follows. So even a stopped agent (SIGSTOP, a debugger) keeps nothing running past its fence.

It imports very little, because one starts with each attempt. It works alone: the agent's modules are not on its path.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the clock of controlplane.agent.fence.read_uptime
LOOK_INTERVAL = 0.5  # seconds between looks at the clock, because select() does not count suspended time
KILL_INTERVAL = 0.01  # seconds between two tries to kill the rest
CLEANUP_PATIENCE = 60.0  # seconds
KILL_TRIES = 100  # tries, after which processes that this user may not signal are left alone
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGED = (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)  # signals that Python or this module changes
PDEATHSIG, DUMPABLE, SUBREAPER = 1, 4, 36


def prctl(option: int, value: int) -> None:
    """Call prctl where the system has it (Linux)."""
    if call := getattr(ctypes.CDLL(None), "prctl", None):
        call(option, value, 0, 0, 0)


def try_to(call: Callable[..., object], *arguments: object) -> bool:
    """Make a system call. Return False if the process is gone, may not be signalled, or the pipe is not ready."""
    try:
        call(*arguments)
        return True
    except (ProcessLookupError, PermissionError, BlockingIOError, BrokenPipeError):
        return False


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process, dead ones too. Return none if the system does not list them."""
    pids: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return pids
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                pids += map(int, file.read().split())
        except OSError:
            continue
    return pids


def descendants(root: int) -> list[int]:
    """Return all descendants of `root`, parents first."""
    pids = children(root)
    for pid in pids:
        pids += children(pid)
    return pids


def signal_tree(root: int, number: int) -> bool:
    """Signal all descendants of `root`, parents first. Return False if none could be signalled."""
    reached = False
    for pid in descendants(root):  # find all first: when one dies, its children get another parent
        reached = try_to(os.kill, pid, number) or reached
    return reached


class Reaper:
    def __init__(self, control: int, lock: int | None = None) -> None:
        self.lock = lock
        self.pid = os.getpid()
        self.control, self.pending = control, b""
        self.fence: float | None = None
        self.ending = False
        self.main = 0
        self.status: int | None = None  # of `main`, as from waitpid
        self.wakeup, self.alarm = os.pipe()
        for descriptor in (control, self.wakeup, self.alarm):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the wakeup fd gets a byte
        signal.set_wakeup_fd(self.alarm, warn_on_full_buffer=False)

    def close(self) -> None:
        """Close the reaper's descriptors in the process of the code, if that was forked without exec."""
        signal.set_wakeup_fd(-1)  # asyncio may have done this already after the fork
        for descriptor in (self.control, self.wakeup, self.alarm, self.lock):
            if descriptor is not None:
                os.close(descriptor)

    def read(self) -> None:
        """Read the agent's messages. Set `ending` if it asks for the end, or has closed CONTROL."""
        try:
            data = os.read(self.control, 65536)
        except BlockingIOError:
            return
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            if line[:1] == b"=":
                self.fence = float(line[1:]) if line[1:] else None
        self.ending = self.ending or not data or b"!" in lines

    def wait(self, seconds: float | None) -> None:
        if self.fence is not None:
            left = max(0.0, self.fence - time.clock_gettime(CLOCK))
            seconds = min(LOOK_INTERVAL if seconds is None else seconds, left)
        select.select([self.wakeup] if self.ending else [self.wakeup, self.control], [], [], seconds)
        try_to(os.read, self.wakeup, 65536)

    def reap_children(self) -> bool:
        """Reap dead children. Return False if no child is left."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if dead is None:
                return True
            if dead.si_pid == self.main:
                self.kill_group()
            pid, status = os.waitpid(dead.si_pid, 0)
            if pid == self.main:
                self.status = status

    def kill_group(self) -> None:
        """Kill the process group of the code.

        Do this before its first process is reaped, because then the id may belong to another process.
        """
        try_to(os.killpg, self.main, signal.SIGKILL)

    def guard(
        self,
        status: int,
        descriptors: list[int],
        cleanup: list[str] | None = None,
        env: dict[str, str] | None = None,
        marker: str | None = None,
    ) -> NoReturn:
        """Guard the code until no process of it is left, and report to STATUS. `descriptors` are for the code alone."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)  # so that a stream is closed when the code closes it
        try_to(os.write, status, f"{self.main}\n".encode())
        for descriptor in descriptors if cleanup else (status, *descriptors):
            os.close(descriptor)
        os.chdir("/")
        self.watch()
        is_clear = self.clear()
        if cleanup:
            try_to(os.write, status, b"~!\n" if self.ending else b"~\n")
            is_clear = self.clean_up(cleanup, env or {}, status) and is_clear
        if is_clear:
            remove(marker)
        leave(None if self.ending else self.status)

    def clean_up(self, argv: list[str], env: dict[str, str], status: int) -> bool:
        """Run the cleanup again until it succeeds, at most CLEANUP_PATIENCE seconds. Return True if it succeeded.

        Its output goes to STATUS.
        """
        has_succeeded = False
        until = time.monotonic() + CLEANUP_PATIENCE
        while time.monotonic() < until:
            try:
                pid = os.fork()
            except OSError:  # the machine has no free process or memory now
                time.sleep(LOOK_INTERVAL)
                continue
            if not pid:
                try:
                    become_code(self.pid)
                    os.dup2(status, 1)
                    os.execvpe(argv[0], argv, env)  # noqa: S606 (the agent's own command)
                finally:
                    os._exit(127)
            ended = 0, 0
            while not ended[0] and time.monotonic() < until:
                select.select([self.wakeup], [], [], LOOK_INTERVAL)
                try_to(os.read, self.wakeup, 65536)
                ended = os.waitpid(pid, os.WNOHANG)
            if ended[0] and not ended[1]:
                has_succeeded = True
                break
            time.sleep(LOOK_INTERVAL)
        return self.clear() and has_succeeded

    def watch(self) -> None:
        """Wait until the code has ended or must be killed."""
        while self.reap_children() and self.status is None and not self.ending:
            self.wait(None)
            self.read()  # read first: the agent may have renewed the fence just now
            self.ending = self.ending or (self.fence is not None and time.clock_gettime(CLOCK) >= self.fence)
        self.ending = self.ending or self.status is None

    def clear(self) -> bool:
        """Kill until no process is left, and return True. Return False if processes cannot be killed.

        If the system does not list children, kill the process group only.
        """
        self.fence, tries = None, 0
        while self.reap_children() and tries < KILL_TRIES:
            if self.status is None:
                self.kill_group()
            tries = 0 if signal_tree(os.getpid(), signal.SIGKILL) else tries + 1
            select.select([self.wakeup], [], [], KILL_INTERVAL)
            self.wait(0)
        return tries < KILL_TRIES


def start(argv: list[str], env: dict[str, str], cwd: str | None, status: int) -> int:
    """Start the code and return its process id."""
    parent = os.getpid()
    if pid := fork(status):
        return pid
    step = "cwd" if cwd else "exec"
    try:
        become_code(parent)
        if cwd:
            os.chdir(cwd)
            step = "exec"
        os.execvpe(argv[0], argv, env)  # noqa: S606 (a shell only if the job asks for one)
    except BaseException as error:
        report_problem(status, step, error, argv[0])
    finally:
        os._exit(127)


def fork(status: int) -> int:
    """Fork the process of the code. If that fails, report it to STATUS and exit."""
    try:
        return os.fork()
    except OSError as error:
        report_problem(status, "fork", error, "fork")
        os._exit(127)


def report_problem(status: int, step: str, error: BaseException, place: str) -> None:
    number, why = (error.errno or 0, error.strerror) if isinstance(error, OSError) else (0, str(error))
    place = (error.filename if isinstance(error, OSError) else None) or place
    os.write(status, f"!{step} {number} {why}: {place!r}\n".encode()[:1000])


def become_code(parent: int) -> None:
    """Become the first process of the code: lead a session and a group, and die with the reaper."""
    os.setsid()
    prctl(PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)
    for number in CHANGED:
        signal.signal(number, signal.SIG_DFL)


def prepare() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(SUBREAPER, 1)
    prctl(DUMPABLE, 0)  # no job's code may attach to this process as a debugger


def remove(marker: str | None) -> None:
    """Remove the marker of the attempt. A marker that stays only delays the proof that its server ended."""
    try:
        if marker:
            os.unlink(marker)
    except OSError:
        return


def leave(status: int | None) -> NoReturn:
    """Exit with the status of the code. None means that it was killed for its agent or its fence: end by SIGKILL."""
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    if number:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status or 0))


def main() -> None:
    command, control, status, *lock = map(int, sys.argv[1:5])
    prepare()
    for descriptor in (command, control, status, *lock):
        os.set_inheritable(descriptor, False)
    reaper = Reaper(control, lock[0] if lock else None)
    with open(command, "rb") as file:
        argv, env, cwd, descriptors, cleanup, marker = marshal.load(file)  # noqa: S302 (from the agent)
    reaper.read()
    if reaper.ending:  # the agent is dead, or has cancelled: start nothing
        remove(marker)
        leave(None)
    reaper.main = start(argv, env, cwd, status)
    reaper.guard(status, descriptors, cleanup, env, marker)


if __name__ == "__main__":
    main()
