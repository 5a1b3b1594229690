"""Child processes, each the leader of its own process group: start, kill, read, reap."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import IO, cast

from jobs.agent.warding import Warding

Hear = Callable[[str, bytes], None]  # with STDOUT or STDERR

CHUNK = 65536
STDOUT_KEPT = 16 * 1024
STDERR_KEPT = 4 * 1024
# Nothing of a job may run before the warden knows its group, or a kill -9 of the agent just then would leave it
# running. So a shell waits for a line on stdin, the rest of which is the job's input; if we die it reads the end.
GATE = ["/bin/sh", "-c", 'read -r _ && exec "$@"', "gate"]


@dataclass(frozen=True)
class Command:
    """What to start. `with_result`: a file descriptor for a result is the last argument."""

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    cwd: str | None = None
    with_result: bool = False


@dataclass(frozen=True)
class Ended:
    """How a child ended; `status` as in subprocess: negative for a signal."""

    key: str
    status: int
    stdout: bytes
    stderr: bytes
    result: bytes


@dataclass
class Tail:
    """The last bytes of a pipe; the rest is heard and forgotten, so that the child never blocks."""

    pipe: IO[bytes]
    kept: int
    hear: Callable[[bytes], None]
    data: bytearray = field(default_factory=bytearray)

    def go_on(self) -> bool:
        """False: at the end."""
        return self.read() != 0

    def read(self) -> int | None:
        """Bytes read: 0 at the end, None when there is nothing yet."""
        try:
            chunk = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return None
        self.hear(chunk)
        self.data += chunk
        del self.data[: -self.kept]
        return len(chunk)


@dataclass
class Feed:
    """What is still to be written to a pipe."""

    pipe: IO[bytes]
    rest: memoryview

    def go_on(self) -> bool:
        """False: all is written, or nobody reads it."""
        try:
            self.rest = self.rest[os.write(self.pipe.fileno(), self.rest) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self.rest)


@dataclass
class Child:
    key: str
    process: subprocess.Popen[bytes]
    feed: Feed
    tails: tuple[Tail, Tail]
    result: IO[bytes] | None
    kill_at: float | None = None  # monotonic: when a SIGTERM that was not enough becomes a SIGKILL

    def ended_by_itself(self) -> bool:
        """It has exited, and no signal did it. Leaves it to be reaped."""
        seen = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return seen is not None and seen.si_code == os.CLD_EXITED

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        # Not reaped yet, so the number is still this group's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Supervisor:
    """Everything but `kill_all` belongs to the main thread."""

    def __init__(self, selector: selectors.BaseSelector, warding: Warding) -> None:
        self._selector, self._warding = selector, warding
        self._children: dict[str, Child] = {}
        self._lock = threading.Lock()  # a child is reaped or signalled from another thread, never both at once

    def __len__(self) -> int:
        return len(self._children)

    def pid(self, key: str) -> int | None:
        child = self._children.get(key)
        return child.process.pid if child else None

    def start(self, key: str, command: Command, hear: Hear = lambda stream, chunk: None) -> None:
        """Raises OSError, ValueError or TypeError when it cannot be started. `hear` is told all that it writes."""
        _check_startable(command)
        argv, result = [*GATE, *command.argv], None
        if command.with_result:
            result = tempfile.TemporaryFile()  # noqa: SIM115 (closed when reaped, or just below)
            argv.append(str(result.fileno()))
        try:
            process = subprocess.Popen(
                argv,
                env=command.env,
                cwd=command.cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(result.fileno(),) if result else (),
                start_new_session=True,
            )
        except BaseException:
            if result:
                result.close()
            raise
        self._warding.add(process.pid)
        stdin, stdout, stderr = cast("list[IO[bytes]]", [process.stdin, process.stdout, process.stderr])
        feed = Feed(stdin, memoryview(b"go\n" + command.stdin))
        tails = (
            Tail(stdout, STDOUT_KEPT, partial(hear, "STDOUT")),
            Tail(stderr, STDERR_KEPT, partial(hear, "STDERR")),
        )
        with self._lock:
            self._children[key] = Child(key, process, feed, tails, result)
        self._listen(feed, selectors.EVENT_WRITE)
        for tail in tails:
            self._listen(tail, selectors.EVENT_READ)
        if not feed.go_on():
            self._hang_up(feed)

    def kill(self, key: str, patience: float = 0.0) -> bool:
        """SIGKILL the group, after a SIGTERM and `patience` seconds if given. False: it had ended by itself."""
        child = self._children.get(key)
        if child is None or child.ended_by_itself():
            return False
        if patience <= 0:
            child.signal(signal.SIGKILL)
        elif child.kill_at is None:
            child.kill_at = time.monotonic() + patience
            child.signal(signal.SIGTERM)
            child.signal(signal.SIGCONT)  # a stopped process takes no SIGTERM
        else:
            child.kill_at = min(child.kill_at, time.monotonic() + patience)
        return True

    def kill_all(self) -> None:
        """SIGKILL every group. From any thread."""
        with self._lock:
            for child in self._children.values():
                child.signal(signal.SIGKILL)

    def stream(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        """Read and write what can be, without waiting."""
        for key, _ in ready:
            if isinstance(key.data, Tail | Feed) and not key.data.go_on():
                self._hang_up(key.data)

    def reap(self) -> list[Ended]:
        """Escalate what is due, collect what has ended."""
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at is not None and now >= child.kill_at:
                child.signal(signal.SIGKILL)
                child.kill_at = None
        return [self._bury(child) for child in list(self._children.values()) if child.ended()]

    def next_kill_at(self) -> float | None:
        """Monotonic time of the next escalation."""
        return min((child.kill_at for child in self._children.values() if child.kill_at is not None), default=None)

    def _bury(self, child: Child) -> Ended:
        child.signal(signal.SIGKILL)  # what it left behind in its group
        with self._lock:
            self._warding.remove(child.process.pid)
            del self._children[child.key]
            status = child.process.wait()
        self._hang_up(child.feed)
        for tail in child.tails:
            # Bounded: something that left the group may hold the pipe and write for ever.
            for _ in range(32):
                if tail.pipe.closed or not tail.read():
                    break
            self._hang_up(tail)
        result = b""
        if child.result:
            with child.result:
                child.result.seek(0)
                result = child.result.read()
        return Ended(child.key, status, bytes(child.tails[0].data), bytes(child.tails[1].data), result)

    def _listen(self, stream: Tail | Feed, event: int) -> None:
        os.set_blocking(stream.pipe.fileno(), False)
        self._selector.register(stream.pipe, event, stream)

    def _hang_up(self, stream: Tail | Feed) -> None:
        if not stream.pipe.closed:
            self._selector.unregister(stream.pipe)
            stream.pipe.close()


def _check_startable(command: Command) -> None:
    """The gate's shell would notice too, but nobody could tell that from the job's own exit status."""
    program = command.argv[0]
    if os.sep in program:
        found = shutil.which(os.path.join(command.cwd or "", program))
    else:
        found = shutil.which(program, path=command.env.get("PATH", os.defpath))
    if not found and os.path.isdir(command.cwd or "."):
        raise FileNotFoundError(errno.ENOENT, "no such command, or not executable", program)
