"""The probe: a command or function of the user that decides regularly whether this machine is fit for work.

While it fails, the worker is cordoned. Main thread only.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping

import structlog

from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.from_code.handlers import FUNCTION
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.environment import with_modules
from controlplane.agent.processes.supervisor import Supervisor

log = structlog.get_logger()
KEY = "probe"  # a key among the supervisor's children; most of them are attempts
PASSED = "the probe passed again"


class Probe:
    """Run a probe every `interval` seconds.

    `command` is a shell command or package.module:function. None means that there is no probe, and the machine is fit.
    A probe that takes longer than `timeout` seconds has failed. `on_change` is called when the result changes.
    """

    def __init__(
        self,
        command: str | None,
        interval: float,
        timeout: float,
        supervisor: Supervisor,
        environment: Mapping[str, str],
        cordon: SelfCordon,
        on_change: Callable[[], None],
    ) -> None:
        self._command, self._interval, self._timeout = command, interval, timeout
        self._supervisor, self._environment = supervisor, environment
        self._cordon, self._on_change = cordon, on_change
        self.is_passing = command is None  # claim nothing before the first probe has passed
        self._reason = ""
        self._next_at = 0.0  # monotonic
        self._ends_at: float | None = None  # monotonic; None if no probe runs
        self._is_overdue = False

    def next_step_at(self) -> float | None:
        """Return when `advance` is due (monotonic), or None."""
        if self._command is None or self._is_overdue:
            return None
        return self._next_at if self._ends_at is None else self._ends_at

    def advance(self) -> None:
        """Start the probe when it is due, and kill it when it takes too long."""
        now, due = time.monotonic(), self.next_step_at()
        if due is None or now < due:
            return
        if self._ends_at is not None:
            self._is_overdue = self._supervisor.kill_child(KEY)
            return
        self._next_at, self._ends_at = now + self._interval, now + self._timeout
        try:
            self._supervisor.start_child(KEY, build_command(str(self._command), self._environment))
        except OSError as error:
            self._ends_at = None
            self._judge(f"it could not be started: {error}")

    def record_exit(self, child_exit: ChildExit) -> None:
        """Record the result of a probe that has ended."""
        is_overdue, self._is_overdue, self._ends_at = self._is_overdue, False, None
        if is_overdue:
            self._judge(f"it took longer than {self._timeout:g} s")
        elif child_exit.status == -signal.SIGKILL:
            pass  # killed with all code for the fence: no result
        elif child_exit.status:
            lines = decode_text(child_exit.stderr or child_exit.stdout).strip().split("\n")
            self._judge(f"it ended with status {child_exit.status}: {lines[-1].strip()}".rstrip(": "))
        else:
            self._judge(None)

    def _judge(self, problem: str | None) -> None:
        reason = "" if problem is None else f"the probe failed: {problem}"[:MESSAGE_LIMIT]
        before = (self.is_passing, self._reason)
        self.is_passing, self._reason = problem is None, reason
        if before == (self.is_passing, self._reason):
            return
        if reason:
            log.warning("Probe failed: no new work", why=reason)
            self._cordon.cordon(reason)
        else:
            log.info("Probe passed")
            self._cordon.lift(PASSED)
        self._on_change()


def build_command(probe: str, environment: Mapping[str, str]) -> ChildCommand:
    if FUNCTION.fullmatch(probe):
        argv = [sys.executable, "-m", "controlplane.agent.fitness.probe_child", probe]
        return ChildCommand(argv, with_modules(dict(environment)), b"")
    return ChildCommand(["/bin/sh", "-c", probe], dict(environment), b"")
