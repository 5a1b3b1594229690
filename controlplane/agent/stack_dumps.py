"""The stacks of running attempts that an operator has asked for. Main thread only, except the reading."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from controlplane.agent.attempt import AttemptStage, HeldAttempt
from controlplane.agent.attempt_table import AttemptTable
from controlplane.agent.limits import STACK_LIMIT
from controlplane.agent.processes.stacks import read_stacks
from controlplane.agent.processes.supervisor import Supervisor

NO_STACKS = "The code is no Python function of the agent.\nIt has no Python stacks to show."
NOT_WRITTEN = "The process of the code has not written its stacks in time."


@dataclass(frozen=True)
class StackResult:
    attempt: str
    text: str


class StackDumps:
    """Read each stack once for each request, in a thread, because the code may be slow to write it.

    The thread calls `put` with the StackResult. The main thread then calls `report`, which uses `enqueue`.
    """

    def __init__(
        self,
        table: AttemptTable,
        supervisor: Supervisor,
        enqueue: Callable[[HeldAttempt, list[dict[str, Any]]], None],
    ) -> None:
        self._table, self._supervisor, self._enqueue = table, supervisor, enqueue
        self._requested: set[str] = set()
        self.put: Callable[[StackResult], None] = self.report

    def begin(self, requested: Iterable[str]) -> None:
        """Read the stacks of the requested attempts that run here. A request lasts until its report is answered."""
        wanted = {*requested}
        new = wanted - self._requested
        self._requested &= wanted
        for attempt in self._table.list_running() if new else ():
            if attempt.id in new and (child := self._supervisor.get_child(attempt.id)) is not None:
                self._requested.add(attempt.id)
                processes = str(self._supervisor.look_at(attempt.id))
                is_own = child.command.with_pulse  # a Python process of the agent
                arguments = attempt.id, processes, is_own
                threading.Thread(target=self._read, args=arguments, name="reads stacks", daemon=True).start()

    def _read(self, attempt: str, processes: str, is_own: bool) -> None:
        text = read_stacks(partial(self._supervisor.child_pid, attempt)) if is_own else None
        text = text or f"{NOT_WRITTEN if is_own else NO_STACKS}\nIts processes: {processes}"
        self.put(StackResult(attempt, text[-STACK_LIMIT:]))

    def report(self, result: StackResult) -> None:
        """Report the stacks of an attempt, unless it has ended."""
        attempt = self._table.find(result.attempt)
        if attempt and attempt.stage is AttemptStage.RUNNING:
            self._enqueue(attempt, [{"event": "STACK", "text": result.text}])
