"""Check whether this machine can start code. While it cannot, the worker is cordoned and gives its jobs back.

A job would fail on a broken machine, and the next one too: a worker that fails its jobs is always free. So an error of
the machine gives the job back, and the worker claims nothing until a check has passed. The check writes a file, opens
file descriptors, and starts a process that starts another. The cordon ends without an operator.

A job may also cause the error itself, for example with a working directory on a file server that does not answer. Each
worker whose check passes gives such a job back TIMES_GIVEN_BACK times at most. After that the job fails. Main thread
only.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping

import structlog

from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.machine_errors import MachineError
from controlplane.agent.processes.supervisor import Supervisor

log = structlog.get_logger()
KEY = "machine"  # a key among the supervisor's children; most of them are attempts
CAUSE = "machine"
LOOK_INTERVAL = (
    10.0  # seconds between two looks at the disk of a healthy machine, and between two checks after failed jobs
)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds from an error to the check, doubled if the errors are close together
CHECK_INTERVAL = 5.0  # seconds between two checks that fail
HEALTHY_AFTER = 600.0  # seconds without an error after which the pause is short again
PATIENCE = 30.0  # seconds: the timeout of one command of a check
PIPES = 8  # pipes that it must be possible to open, as many as an attempt needs
TIMES_GIVEN_BACK = 3  # limit for one job, for errors that no check confirms
JOBS_REMEMBERED = 1000
FORK_COMMAND = ["/bin/sh", "-c", "(:) && :"]
"""The shell forks for its first part, as most scripts do."""


class MachineWatch:
    """Check this machine. `on_change` is called when the worker becomes fit or unfit for work."""

    def __init__(
        self,
        supervisor: Supervisor,
        folder: Folder,
        environment: Mapping[str, str],
        cordon: SelfCordon,
        on_change: Callable[[], None],
    ) -> None:
        self._supervisor, self._folder, self._environment = supervisor, folder, environment
        self._cordon, self._on_change = cordon, on_change
        self.reason = ""  # why no code can start; empty while the machine is healthy
        self._pause = FIRST_PAUSE
        self._error_at = float("-inf")  # this and the next three: monotonic
        self._check_at: float | None = None  # None if no check is due
        self._command_ends_at: float | None = None  # None if no command runs
        self._look_at = 0.0
        self._checked_at = float("-inf")
        self._is_overdue = False
        self._commands: list[list[str]] = []  # the rest of the current check
        self._asked: dict[str, list[str]] = {}  # commands to check, from the errors since the machine was healthy
        self._suspects: set[str] = set()  # jobs given back since the last check
        self._given_back = Counter[str]()  # by job, errors that no check confirmed

    def record_error(self, job: str, error: MachineError) -> bool:
        """Cordon this worker for an error that kept a job's code from starting.

        Return True if the job must be given back, and False if the job causes the error and must fail.
        """
        if not error.is_certain and self._given_back[job] >= TIMES_GIVEN_BACK:
            return False
        now = time.monotonic()
        if not self.reason:
            is_soon = now - self._error_at < HEALTHY_AFTER
            self._pause = min(LONGEST_PAUSE, self._pause * 2) if is_soon else FIRST_PAUSE
            self._check_at = now + self._pause
        self._error_at = now
        if error.check:
            self._asked[" ".join(error.check)] = error.check
        if not error.is_certain:
            self._suspects.add(job)
        self._cordon_for(str(error))
        return True

    def check_soon(self) -> None:
        """Check soon: code has failed, perhaps because the machine has run out of something."""
        now = time.monotonic()
        if self._check_at is None and self._command_ends_at is None and now >= self._checked_at + LOOK_INTERVAL:
            self._check_at = now

    def next_step_at(self) -> float | None:
        """Return when `advance` is due (monotonic), or None if only the next look at the disk is due."""
        if self._command_ends_at is not None:
            return None if self._is_overdue else self._command_ends_at
        return self._check_at

    def advance(self) -> None:
        """Look at the disk now and then, start a check that is due, and kill a command that takes too long."""
        now = time.monotonic()
        if now >= self._look_at and not self.reason:
            self._look_at = now + LOOK_INTERVAL
            self._judge(self._find_problem())
        if self._command_ends_at is not None:
            if now >= self._command_ends_at and not self._is_overdue:
                self._is_overdue = self._supervisor.kill_child(KEY)
        elif self._check_at is not None and now >= self._check_at:
            self._check_at, self._checked_at = None, now
            self._commands = [FORK_COMMAND, *(argv for argv in self._asked.values() if argv != FORK_COMMAND)]
            self._continue_check(self._find_problem())

    def record_exit(self, child_exit: ChildExit) -> None:
        """Continue the check after one of its commands has ended."""
        is_overdue, self._is_overdue, self._command_ends_at = self._is_overdue, False, None
        problem = ""
        if is_overdue:
            problem = f"a command took longer than {PATIENCE:g} s"
        elif child_exit.status == -signal.SIGKILL:
            self._check_at = time.monotonic() + CHECK_INTERVAL  # killed together with all code: no result
            return
        elif child_exit.status:
            lines = decode_text(child_exit.stderr or child_exit.stdout).strip().split("\n")
            problem = child_exit.problem or f"a command ended with status {child_exit.status}: {lines[-1]}".rstrip(": ")
        self._continue_check(problem)

    def _continue_check(self, problem: str) -> None:
        if problem or not self._commands:
            self._judge(problem)
            return
        try:
            command = ChildCommand(self._commands.pop(0), dict(self._environment), b"", is_own=True)
            self._supervisor.start_child(KEY, command)
        except (OSError, MemoryError) as error:
            self._judge(describe(error))
        else:
            self._command_ends_at = time.monotonic() + PATIENCE

    def _judge(self, problem: str) -> None:
        """Record the problem of a check or a look, or that it found none."""
        now = time.monotonic()
        if problem:
            self._suspects.clear()  # the machine was at fault, not these jobs
            self._error_at, self._check_at = now, now + CHECK_INTERVAL
            self._cordon_for(problem)
        elif self.reason and self._check_at is None:  # no new error during the check
            log.info("This machine can start code again", was=self.reason)
            self._given_back.update(self._suspects)
            self._forget_oldest()
            self._suspects.clear()
            self._asked.clear()
            self.reason = ""
            self._cordon.lift("this machine can start code again", CAUSE)
            self._on_change()

    def _forget_oldest(self) -> None:
        for job in list(self._given_back)[: max(0, len(self._given_back) - JOBS_REMEMBERED)]:
            del self._given_back[job]

    def _cordon_for(self, problem: str) -> None:
        if self.reason:
            return  # keep the first reason until the machine is healthy
        self.reason = f"this machine cannot start code: {problem}"[:MESSAGE_LIMIT]
        log.error("This machine cannot start code: no new work until it can", why=problem)
        self._cordon.cordon(self.reason, CAUSE)
        self._on_change()

    def _find_problem(self) -> str:
        """Return what keeps this process from starting code, or an empty text."""
        pipes: list[int] = []
        try:
            self._folder.check()
            for _ in range(PIPES):
                pipes += os.pipe()
        except (OSError, MemoryError) as error:
            return describe(error)
        finally:
            for descriptor in pipes:
                os.close(descriptor)
        return ""


def describe(error: BaseException) -> str:
    """Return the text of a system error, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename!r}" if error.filename else error.strerror
    return str(error) or type(error).__name__
