"""The process above the code of one attempt: it starts that code, and ends when nothing of it is left.

Orphans of the code become children of this process (a subreaper), so neither `setsid` nor `nohup` nor a double fork
leads out of its reach; whatever outlives the code's first process is killed. It ends as that process did.

`python -I -S reaper.py COMMAND CONTROL STATUS`, three file descriptors. COMMAND holds argv, env, cwd, the descriptors
that are for the code alone, and what is run when nothing is left of it, marshalled.
CONTROL is read by the line: `=UPTIME` or `=` (the fence: kill all at that reading of the uptime clock, never) and `!`
(kill all now); its end, which a `kill -9` of the agent brings too, kills all. To STATUS goes the process id of the
code, or after a `!` why it could not be started; and when nothing is left of it and the last command is run a `~`, or
`~!` if it was killed here, with what that command writes. So a stopped agent (SIGSTOP, a debugger) keeps nothing
running past its fence.

It imports next to nothing, for one is started with each attempt, and works alone: no path leads to the agent's modules.
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
LOOK_INTERVAL = 0.5  # seconds: select() does not count time asleep, so look at the clock now and then
AGAIN = 0.01  # seconds between two tries to kill what is left
CLEANUP_PATIENCE = 60.0  # seconds
STUBBORN = 100  # tries after which processes that we may not signal (another user's by now) are left alone
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGED = (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)  # here, by Python or by us
PDEATHSIG, DUMPABLE, SUBREAPER = 1, 4, 36


def prctl(option: int, value: int) -> None:
    """Where the system has it (Linux)."""
    if call := getattr(ctypes.CDLL(None), "prctl", None):
        call(option, value, 0, 0, 0)


def try_to(call: Callable[..., object], *arguments: object) -> bool:
    """False: there was nobody, or we may not, or there is nothing just now."""
    try:
        call(*arguments)
        return True
    except (ProcessLookupError, PermissionError, BlockingIOError, BrokenPipeError):
        return False


def children(pid: int) -> list[int]:
    """The children of all its threads, dead ones too. None where the system does not list them."""
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
    """All that descends from `root`, parents first."""
    pids = children(root)
    for pid in pids:
        pids += children(pid)
    return pids


def signal_tree(root: int, number: int) -> bool:
    """Signal all that descends from `root`, parents first. False: there was nothing that we could signal."""
    reached = False
    for pid in descendants(root):  # all of them are found before the first dies, for then its children are another's
        reached = try_to(os.kill, pid, number) or reached
    return reached


class Reaper:
    def __init__(self, control: int) -> None:
        self.pid = os.getpid()
        self.control, self.pending = control, b""
        self.fence: float | None = None
        self.ending = False
        self.main = 0
        self.status: int | None = None  # of `main`, as waitpid has it
        self.wakeup, self.alarm = os.pipe()
        for descriptor in (control, self.wakeup, self.alarm):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the wakeup fd hears of it
        signal.set_wakeup_fd(self.alarm, warn_on_full_buffer=False)

    def close(self) -> None:
        """In the process of the code, where it was forked from us and not started anew."""
        signal.set_wakeup_fd(-1)  # which asyncio may have done already, as this process was forked
        for descriptor in (self.control, self.wakeup, self.alarm):
            os.close(descriptor)

    def read(self) -> None:
        """What the agent says; sets `ending` when it says so, or nothing more for ever."""
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
        """Bury the dead. False: there is no child any more."""
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
        """Before the code's first process is buried: until then its number is its own."""
        try_to(os.killpg, self.main, signal.SIGKILL)

    def guard(
        self, status: int, descriptors: list[int], cleanup: list[str] | None = None, env: dict[str, str] | None = None
    ) -> NoReturn:
        """From now until nothing is left of `main`. STATUS is told of it; `descriptors` are for the code alone."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)  # what the code closes is closed
        try_to(os.write, status, f"{self.main}\n".encode())
        for descriptor in descriptors if cleanup else (status, *descriptors):
            os.close(descriptor)
        os.chdir("/")
        self.watch()
        self.clear()
        if cleanup:
            try_to(os.write, status, b"~!\n" if self.ending else b"~\n")
            self.clean_up(cleanup, env or {}, status)
        leave(None if self.ending else self.status)

    def clean_up(self, argv: list[str], env: dict[str, str], status: int) -> None:
        """Run it, again until it succeeds; nobody waits for that for ever. What it writes goes to STATUS."""
        until = time.monotonic() + CLEANUP_PATIENCE
        while time.monotonic() < until:
            pid = os.fork()
            if not pid:
                try:
                    become_code(self.pid)
                    os.dup2(status, 1)
                    os.execvpe(argv[0], argv, env)  # noqa: S606 (our own command)
                finally:
                    os._exit(127)
            ended = 0, 0
            while not ended[0] and time.monotonic() < until:
                select.select([self.wakeup], [], [], LOOK_INTERVAL)
                try_to(os.read, self.wakeup, 65536)
                ended = os.waitpid(pid, os.WNOHANG)
            if ended[0] and not ended[1]:
                break
            time.sleep(LOOK_INTERVAL)
        self.clear()

    def watch(self) -> None:
        """Until the code has ended, or has to."""
        while self.reap_children() and self.status is None and not self.ending:
            self.wait(None)
            self.read()  # first: the fence may have been moved on just before it
            self.ending = self.ending or (self.fence is not None and time.clock_gettime(CLOCK) >= self.fence)
        self.ending = self.ending or self.status is None

    def clear(self) -> None:
        """Kill until nothing is left. Where children are not listed: the group of the code, and that is all."""
        self.fence, tries = None, 0
        while self.reap_children() and tries < STUBBORN:
            if self.status is None:
                self.kill_group()
            tries = 0 if signal_tree(os.getpid(), signal.SIGKILL) else tries + 1
            select.select([self.wakeup], [], [], AGAIN)
            self.wait(0)


def start(argv: list[str], env: dict[str, str], cwd: str | None, status: int) -> int:
    """The process id of the code."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    try:
        become_code(parent)
        if cwd:
            os.chdir(cwd)
        os.execvpe(argv[0], argv, env)  # noqa: S606 (a shell only if the job says so)
    except BaseException as error:
        why = error.strerror if isinstance(error, OSError) else error
        place = error.filename if isinstance(error, OSError) and error.filename else argv[0]
        os.write(status, f"!{why}: {place!r}\n".encode()[:1000])
    finally:
        os._exit(127)


def become_code(parent: int) -> None:
    """The first process of the code: it leads a session and a group, and dies with its reaper."""
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
    prctl(DUMPABLE, 0)  # no code of a job attaches itself to us as a debugger does


def leave(status: int | None) -> NoReturn:
    """As the code did; killed when it was killed for its agent or its fence (None)."""
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    if number:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status or 0))


def main() -> None:
    command, control, status = map(int, sys.argv[1:4])
    prepare()
    for descriptor in (command, control, status):
        os.set_inheritable(descriptor, False)
    reaper = Reaper(control)
    with open(command, "rb") as file:
        argv, env, cwd, descriptors, cleanup = marshal.load(file)  # noqa: S302 (from our own agent)
    reaper.read()
    if reaper.ending:  # the agent is dead already, or wants it no more: nothing begins
        leave(None)
    reaper.main = start(argv, env, cwd, status)
    reaper.guard(status, descriptors, cleanup, env)


if __name__ == "__main__":
    main()
