"""Whether this machine is fit for work: a command or a function says so, once in a while. While it does not, the worker
is cordoned.

Main thread only, but for `SelfCordon`.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from controlplane.agent.child_process import ChildCommand, ChildExit
from controlplane.agent.environment import with_modules
from controlplane.agent.handlers import FUNCTION
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.logs import decode_text
from controlplane.agent.supervisor import Supervisor

log = structlog.get_logger()
KEY = "probe"  # among the supervisor's children, which are attempts otherwise
PASSED = "the probe passed again"


class SelfCordon:
    """What heartbeats say of whether this server is to get work: each, while it is not; then until one was answered.

    It is not for as long as there is any cause."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fields: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}

    @property
    def fields(self) -> dict[str, Any]:
        """For a heartbeat."""
        return self._fields

    def cordon(self, reason: str, cause: str = "probe") -> None:
        with self._lock:
            self._reasons[cause] = reason
            self._fields = {"schedulable": False, "reason": reason}

    def lift(self, reason: str, cause: str = "probe") -> None:
        with self._lock:
            self._reasons.pop(cause, None)
            if self._reasons:
                self._fields = {"schedulable": False, "reason": next(iter(self._reasons.values()))}
            elif self._fields:
                self._fields = {"schedulable": True, "reason": reason}

    def record_answer(self, fields: dict[str, Any]) -> None:
        """A heartbeat with these was answered."""
        with self._lock:
            if self._fields is fields and fields.get("schedulable"):
                self._fields = {}


class Probe:
    """Runs `command`, or calls it where it is package.module:function, every `interval` seconds; None: there is none,
    and the machine is fit. One that takes longer than `timeout` has failed. `on_change` is called when it has news."""

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
        self.is_passing = command is None  # nothing is claimed before the first has passed
        self._reason = ""
        self._next_at = 0.0  # monotonic
        self._ends_at: float | None = None  # monotonic; None: it does not run
        self._is_overdue = False

    def next_step_at(self) -> float | None:
        """Monotonic: when to `advance`."""
        if self._command is None or self._is_overdue:
            return None
        return self._next_at if self._ends_at is None else self._ends_at

    def advance(self) -> None:
        """Start it when it is due, and end it when it takes too long."""
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
        """It has ended."""
        is_overdue, self._is_overdue, self._ends_at = self._is_overdue, False, None
        if is_overdue:
            self._judge(f"it took longer than {self._timeout:g} s")
        elif child_exit.status == -signal.SIGKILL:
            pass  # with all that runs here, for the fence: that says nothing of the machine
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
        argv = [sys.executable, "-m", "controlplane.agent.probe_child", probe]
        return ChildCommand(argv, with_modules(dict(environment)), b"")
    return ChildCommand(["/bin/sh", "-c", probe], dict(environment), b"")
