"""A child process: its command, its state and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.limits import RESULT_KEPT
from controlplane.agent.processes import reaper
from controlplane.agent.processes.child_pipes import AnswerLines, InputFeed, OutputTail
from controlplane.agent.processes.fork_servers import ForkedProcess
from controlplane.agent.processes.machine_errors import NUMBERS, OF_COMMAND

KILL_INTERVAL = 1.0  # seconds between two tries to kill a process


@dataclass(frozen=True)
class ChildCommand:
    """A command to start.

    With `with_result`, the last argument is a file descriptor for the result. With `with_pulse`, one for signs of life
    follows. `module` is the module of the function that `argv` calls: a process that has imported it may make the call.
    A pool process may have several, with commas between them.
    `cleanup` runs when no process of the code is left, and again until it succeeds. `is_own` is True if the agent chose
    the program and not the job: then a missing program is an error of this machine.

    `variables` are the part of `env` that belongs to the attempt. With `in_pool`, a pool process calls the function
    (pool.py). With `is_pool`, this command is such a process.
    """

    argv: list[str]
    env: dict[str, str]
    stdin: bytes
    cwd: str | None = None
    with_result: bool = False
    with_pulse: bool = False
    module: str | None = None
    cleanup: list[str] | None = None
    is_own: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    in_pool: bool = False
    is_pool: bool = False


@dataclass(frozen=True)
class ChildExit:
    """The end of the code.

    `status` is as in subprocess: negative for a signal. `problem` is the reason why the code could not start.
    `is_of_machine` is True if this machine is at fault. `cleanup_output` is what the cleanup wrote. `gave_signs` is
    True if the code gave a sign of life. `is_bystander` is True if its process was killed because of another attempt.
    """

    key: str
    pid: int
    status: int
    stdout: bytes
    stderr: bytes
    result: bytes = b""
    problem: str = ""
    cleanup_output: str = ""
    is_of_machine: bool = False
    gave_signs: bool = False
    is_bystander: bool = False


@dataclass
class ChildProcess:
    key: str
    command: ChildCommand
    process: subprocess.Popen[bytes] | ForkedProcess  # the reaper
    control: IO[bytes]
    feed: InputFeed
    tails: tuple[OutputTail, OutputTail]
    status: OutputTail  # the messages of the reaper
    result: IO[bytes] | None
    pulse: OutputTail | None = None  # the signs of life of the code
    answers: AnswerLines | None = None  # of a pool process
    alive_at: float = field(default_factory=time.monotonic)  # monotonic time of the last sign of life
    kill_at: float | None = None  # monotonic time of the next SIGKILL
    was_killed: bool = False  # by this agent

    @property
    def pid(self) -> int:
        """Return the process id of the code. Until the reaper has reported it, return the reaper's."""
        line = bytes(self.status.data).partition(b"\n")[0]
        return int(line) if line.isdigit() else self.process.pid

    @property
    def has_begun(self) -> bool:
        """Return True if the reaper has reported the process of the code."""
        return bytes(self.status.data).partition(b"\n")[0].isdigit()

    def find_problem(self, status: int) -> tuple[str, bool]:
        """Return why the code could not start, and True if this machine is at fault.

        `status` is the exit status of the reaper.
        """
        lines = bytes(self.status.data).decode(errors="replace").split("\n")
        if line := next((line[1:] for line in lines if line.startswith("!")), ""):
            step, number, text = line.split(" ", 2)
            is_missing = step == "exec" and self.command.is_own and int(number) not in OF_COMMAND
            return text, int(number) in NUMBERS or is_missing
        if status > 0 and not self.has_begun:
            complaint = decode_text(bytes(self.tails[1].data)).strip().rpartition("\n")[2]
            return f"its reaper ended with status {status}: {complaint}".rstrip(": "), True
        return "", False

    @property
    def awaits_cleanup(self) -> bool:
        """Return True if the reaper died before it ran the cleanup."""
        return self.command.cleanup is not None and self.has_begun and not self.is_cleaning

    @property
    def gives_signs(self) -> bool:
        """Return True if the code gives signs of life: it has started to, and has not become another program (exec)."""
        return self.pulse is not None and bool(self.pulse.data) and not self.pulse.pipe.closed

    @property
    def streams(self) -> list[OutputTail | AnswerLines]:
        """Pipes to read from."""
        return [*self.tails, self.status, *(stream for stream in (self.pulse, self.answers) if stream)]

    def record_sign(self) -> None:
        self.alive_at = time.monotonic()

    @property
    def is_cleaning(self) -> bool:
        """Return True if no process of the code is left and the reaper runs the cleanup."""
        return b"~" in self.status.data

    @property
    def cleanup_output(self) -> str:
        """The output of the cleanup."""
        return bytes(self.status.data).decode(errors="replace").partition("~\n")[2]

    def has_exited_by_itself(self) -> bool:
        """Return True if the process has exited and no signal ended it. It is not reaped here."""
        if b"~\n" in self.status.data:
            return True
        status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return status is not None and status.si_code == os.CLD_EXITED

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def report_state(self, line: bytes) -> None:
        """Send a line to the reaper.

        Kill the reaper and all below it if it does not read, because then it guards nothing.
        """
        try:
            sent = os.write(self.control.fileno(), line)
        except BrokenPipeError:
            return  # it has ended
        except BlockingIOError:
            sent = 0
        if sent < len(line):
            reaper.signal_tree(self.process.pid, signal.SIGKILL)
            os.kill(self.process.pid, signal.SIGKILL)

    def describe_exit(self, status: int) -> ChildExit:
        """Return the exit of the child. Its reaper exited with `status`, and all its pipes have been read."""
        result = b""
        if self.result:
            with self.result:
                self.result.seek(0)
                result = self.result.read(RESULT_KEPT + 1)
        problem, is_of_machine = self.find_problem(status)
        return ChildExit(
            key=self.key,
            pid=self.pid,
            status=status,
            stdout=bytes(self.tails[0].data),
            stderr=bytes(self.tails[1].data),
            result=result,
            problem=problem,
            cleanup_output=self.cleanup_output,
            is_of_machine=is_of_machine,
            gave_signs=self.pulse is not None and bool(self.pulse.data),
        )

    def terminate(self) -> None:
        if self.is_cleaning:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process does not react to SIGTERM
            reaper.signal_tree(self.process.pid, number)

    def kill_after(self, patience: float) -> None:
        """Send SIGKILL now, or SIGTERM now and SIGKILL after `patience` seconds. The supervisor does the latter."""
        now = time.monotonic()
        if patience <= 0:
            self.kill_child()
            self.kill_at = now + KILL_INTERVAL
        elif self.kill_at is None:
            self.kill_at = now + patience
            self.terminate()
        else:
            self.kill_at = min(self.kill_at, now + patience)

    def kill_child(self) -> None:
        """Kill all processes of the code. Continue a stopped reaper (SIGCONT), because it kills the rest."""
        if self.is_cleaning:
            return
        self.was_killed = True
        self.report_state(b"!\n")
        reaper.signal_tree(self.process.pid, signal.SIGKILL)
        os.kill(self.process.pid, signal.SIGCONT)  # not with `process.send_signal`, which would reap it
