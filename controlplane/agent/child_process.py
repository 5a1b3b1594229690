"""One child: its command, its streams, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from controlplane.agent import reaper
from controlplane.agent.fork_servers import ForkedProcess

CHUNK = 65536


@dataclass(frozen=True)
class ChildCommand:
    """What to start. `with_result`: a file descriptor for a result is the last argument, and `with_pulse` one for signs
    of life after it. `module`: of the function that `argv` calls, which may be called in a process that has imported it
    already. `cleanup`: what is run, again until it succeeds, when nothing is left of it."""

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    cwd: str | None = None
    with_result: bool = False
    with_pulse: bool = False
    module: str | None = None
    cleanup: list[str] | None = None


@dataclass(frozen=True)
class ChildExit:
    """How the code ended; `status` as in subprocess: negative for a signal. `problem`: why it could not be started.
    `remains`: what its cleanup wrote."""

    key: str
    pid: int
    status: int
    stdout: bytes
    stderr: bytes
    result: bytes = b""
    problem: str = ""
    remains: str = ""


@dataclass
class OutputTail:
    """The last bytes of a pipe; the rest is heard and forgotten, so that the child never blocks."""

    pipe: IO[bytes]
    kept: int
    on_output: Callable[[bytes], None]
    data: bytearray = field(default_factory=bytearray)

    def transfer_data(self) -> bool:
        """False: at the end."""
        return self.read_chunk() != 0

    def read_chunk(self) -> int | None:
        """Bytes read: 0 at the end, None when there is nothing yet."""
        try:
            chunk = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return None
        self.on_output(chunk)
        self.data += chunk
        del self.data[: -self.kept]
        return len(chunk)


@dataclass
class InputFeed:
    """What is still to be written to a pipe."""

    pipe: IO[bytes]
    rest: memoryview

    def transfer_data(self) -> bool:
        """False: all is written, or nobody reads it."""
        try:
            self.rest = self.rest[os.write(self.pipe.fileno(), self.rest) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(self.rest)


@dataclass
class ChildProcess:
    key: str
    process: subprocess.Popen[bytes] | ForkedProcess  # the reaper
    control: IO[bytes]
    feed: InputFeed
    tails: tuple[OutputTail, OutputTail]
    status: OutputTail  # what the reaper says
    result: IO[bytes] | None
    pulse: OutputTail | None = None  # the signs of life that the code gives by itself
    alive_at: float = field(default_factory=time.monotonic)  # monotonic: of the last sign of life
    kill_at: float | None = None  # monotonic: when what was not enough becomes a SIGKILL, or another

    @property
    def pid(self) -> int:
        """Of the code, or of its reaper as long as it has not said."""
        line = bytes(self.status.data).partition(b"\n")[0]
        return int(line) if line.isdigit() else self.process.pid

    @property
    def problem(self) -> str:
        """Why the code could not be started."""
        lines = bytes(self.status.data).decode(errors="replace").split("\n")
        return next((line[1:] for line in lines if line.startswith("!")), "")

    @property
    def gives_signs(self) -> bool:
        """Whether its code gives signs of life by itself: it has begun to, and has not become another program."""
        return self.pulse is not None and bool(self.pulse.data) and not self.pulse.pipe.closed

    @property
    def streams(self) -> list[OutputTail]:
        """All that is read of it."""
        return [*self.tails, self.status, *([self.pulse] if self.pulse else [])]

    def record_sign(self) -> None:
        self.alive_at = time.monotonic()

    @property
    def is_cleaning(self) -> bool:
        """Nothing of it is left but what is to clean up after it."""
        return b"~" in self.status.data

    @property
    def remains(self) -> str:
        """What its cleanup wrote."""
        return bytes(self.status.data).decode(errors="replace").partition("~\n")[2]

    def has_exited_by_itself(self) -> bool:
        """It has exited, and no signal did it. Leaves it to be reaped."""
        if b"~\n" in self.status.data:
            return True
        status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return status is not None and status.si_code == os.CLD_EXITED

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def report_state(self, line: bytes) -> None:
        """To the reaper. One that does not listen guards nothing: it is ended, and what it guards with it."""
        try:
            sent = os.write(self.control.fileno(), line)
        except BrokenPipeError:
            return  # it has ended
        except BlockingIOError:
            sent = 0
        if sent < len(line):
            reaper.signal_tree(self.process.pid, signal.SIGKILL)
            os.kill(self.process.pid, signal.SIGKILL)

    def terminate(self) -> None:
        if self.is_cleaning:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process takes no SIGTERM
            reaper.signal_tree(self.process.pid, number)

    def kill_child(self) -> None:
        """Until nothing is left is for the reaper to see to, which must not be stopped for that."""
        if self.is_cleaning:
            return
        self.report_state(b"!\n")
        reaper.signal_tree(self.process.pid, signal.SIGKILL)
        os.kill(self.process.pid, signal.SIGCONT)  # not by `process`, which would reap it
