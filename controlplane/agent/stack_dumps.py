"""The stacks of running attempts that an operator has asked for. Main thread only, except the reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlplane.agent.attempt import AttemptStage, HeldAttempt
from controlplane.agent.attempt_table import AttemptTable
from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.limits import STACK_LIMIT
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.processes.py_spy import build_py_spy_command, find_python_processes
from controlplane.agent.processes.stacks import read_stacks
from controlplane.agent.processes.supervisor import Supervisor

NO_STACKS = "The code is no Python function of the agent.\nIt has no Python stacks to show."
NO_PY_SPY = "The code is no Python function of the agent.\nTo see the stacks of its Python processes, install py-spy."
NOT_WRITTEN = "The process of the code has not written its stacks in time."


@dataclass(frozen=True)
class StackResult:
    attempt: str
    text: str


class StackDumps:
    """Read the stacks of an attempt once for each request of an operator.

    Python functions write their stacks. A thread waits for that, because the code may be slow. For other code a child
    process reads the stacks with py-spy. Both call `put` with the StackResult. The main thread then calls `report`,
    which uses `enqueue`.
    """

    def __init__(
        self,
        table: AttemptTable,
        supervisor: Supervisor,
        enqueue: Callable[[HeldAttempt, list[dict[str, Any]]], None],
    ) -> None:
        self._table, self._supervisor, self._enqueue = table, supervisor, enqueue
        self._requested: set[str] = set()
        self._dumping: dict[str, tuple[str, str]] = {}  # attempt and its processes, by the key of the child
        self.put: Callable[[StackResult], None] = self.report

    def __contains__(self, key: str) -> bool:
        return key in self._dumping

    def begin(self, requested: Iterable[str]) -> None:
        """Read the stacks of the requested attempts that run here. A request lasts until its report is answered."""
        wanted = {*requested}
        new = wanted - self._requested
        self._requested &= wanted
        for attempt in self._table.list_running() if new else ():
            if attempt.id in new and (child := self._supervisor.get_child(attempt.id)) is not None:
                self._requested.add(attempt.id)
                processes = str(self._supervisor.look_at(attempt.id))
                if child.command.with_pulse:  # a Python process of the agent
                    arguments = attempt.id, processes
                    threading.Thread(target=self._read, args=arguments, name="reads stacks", daemon=True).start()
                else:
                    self._begin_dump(attempt.id, child.process.pid, processes)

    def _read(self, attempt: str, processes: str) -> None:
        text = read_stacks(partial(self._supervisor.child_pid, attempt))
        self._put(attempt, text or NOT_WRITTEN, "" if text else processes)

    def _begin_dump(self, attempt: str, root: int, processes: str) -> None:
        """Start py-spy for the Python processes below the process `root`."""
        pids = find_python_processes(root)
        command = build_py_spy_command(pids) if pids else None
        if command is None:
            self._put(attempt, NO_PY_SPY if pids else NO_STACKS, processes)
            return
        key = f"stacks:{attempt}"
        if key in self:  # it answers this request too
            return
        try:
            self._supervisor.start_child(key, command)
        except OSError as error:
            self._put(attempt, f"py-spy could not be started: {error}", processes)
        else:
            self._dumping[key] = attempt, processes

    def record_exit(self, child_exit: ChildExit) -> None:
        """Record the end of py-spy."""
        attempt, processes = self._dumping.pop(child_exit.key)
        self._put(attempt, decode_text(child_exit.stdout).strip() or "py-spy has printed nothing.", processes)

    def _put(self, attempt: str, text: str, processes: str) -> None:
        text = f"{text}\nIts processes: {processes}" if processes else text
        self.put(StackResult(attempt, text[-STACK_LIMIT:]))

    def report(self, result: StackResult) -> None:
        """Report the stacks of an attempt, unless it has ended."""
        attempt = self._table.find(result.attempt)
        if attempt and attempt.stage is AttemptStage.RUNNING:
            self._enqueue(attempt, [{"event": "STACK", "text": result.text}])
