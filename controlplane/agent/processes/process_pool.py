"""Base class of both process pools of a worker: starts processes and exchanges lines with them. Main thread only."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

import structlog

from controlplane.agent.processes import attempt_mark
from controlplane.agent.processes.child_pipes import CallFeed
from controlplane.agent.processes.child_process import ChildCommand, ChildExit, ChildProcess
from controlplane.agent.processes.pooled_call import Environment, OutputHandler, PooledCall

log = structlog.get_logger()
PRELOADED = 32  # modules that a new process imports before its first call
RETIRE_PATIENCE = 5.0  # seconds in which a process that is not needed any more ends by itself
DIED_SILENTLY = "a pool process ended before it was ready"
DELIVERIES = 3  # processes that may end with a call before they begin it
NEVER_BEGUN = f"{DELIVERIES} pool processes ended before they began it"


class PoolHost(Protocol):
    """Methods of the supervisor that a pool uses."""

    def start_process(self, key: str, command: ChildCommand, on_output: OutputHandler) -> None: ...
    def get_child(self, key: str) -> ChildProcess | None: ...
    def send(self, feed: CallFeed, data: bytes) -> None: ...
    def close_feed(self, child: ChildProcess) -> None: ...


@dataclass
class Member:
    """A pool process."""

    key: str
    environment: Environment
    is_ready: bool = False
    is_retired: bool = False

    @property
    def is_busy(self) -> bool:
        """Return True if it runs a call, or has one that begins when it is ready."""
        raise NotImplementedError


M = TypeVar("M", bound=Member)


class ProcessPool(Generic[M]):
    """`slots` processes may run calls. `most_calls` and `most_memory` (bytes) limit the life of a process."""

    program: ClassVar[str]

    def __init__(self, host: PoolHost, slots: int, most_calls: int, most_memory: int | None = None) -> None:
        self.host, self.slots, self.most_calls, self.most_memory = host, slots, most_calls, most_memory
        self._members: dict[str, M] = {}
        self._by_call: dict[str, M] = {}
        self._modules: dict[Environment, dict[str, None]] = {}  # modules whose calls have returned
        self.named: dict[Environment, str] = {}  # modules of the fork server, with commas between them
        self._ended: list[ChildExit] = []
        self._is_closed = False

    def begin(self, call: PooledCall) -> None:
        """Run a call in a process that is ready, or in a new one. Raise OSError if none can be started."""
        raise NotImplementedError

    def kill(self, key: str, patience: float = 0.0) -> bool:
        """Kill a call after `patience` seconds. Return False if it has ended already."""
        raise NotImplementedError

    def record_end(self, child: ChildProcess, child_exit: ChildExit) -> None:
        """Record the end of a pool process with everything below it."""
        raise NotImplementedError

    def memory_of_earlier(self, key: str) -> int:
        """Return the bytes that the process of a call kept from earlier calls. 0 if that is not known."""
        return 0

    def child_of(self, key: str) -> ChildProcess | None:
        """Return the process of a call, also before the call begins."""
        member = self._by_call.get(key)
        return self.host.get_child(member.key) if member else None

    def take_ended(self) -> list[ChildExit]:
        """Return the calls that have ended. They have left nothing running except threads."""
        for member in list(self._members.values()):
            if (child := self.host.get_child(member.key)) and child.answers and child.answers.lines:
                self._read_answers(member, child)
        ended, self._ended = self._ended, []
        return ended

    def retire_all(self) -> None:
        """Let the processes without a call end by themselves."""
        self._is_closed = True
        for member in self._members.values():
            if not member.is_busy:
                self._retire(member, "")

    @property
    def has_retired(self) -> bool:
        return any(member.is_retired for member in self._members.values())

    def _retire(self, member: M, why: str, call: PooledCall | None = None) -> None:
        """Let a process end by itself and give it no other call. A non-empty `why` is logged."""
        raise NotImplementedError

    def _read_answer(self, member: M, child: ChildProcess, line: bytes) -> None:
        raise NotImplementedError

    def _new_key(self) -> str:
        return f"{attempt_mark.POOLED}{uuid.uuid4()}"

    def _preloads(self, environment: Environment) -> list[str]:
        """Return the modules that a new process imports before its first call."""
        return list(self._modules.get(environment, ()))[-PRELOADED:]

    def _start_process(self, member: M, on_output: OutputHandler) -> None:
        """Start the process of a new member. Raise OSError."""
        marked = {**dict(member.environment), attempt_mark.POOL_NAME: member.key}
        if modules := ",".join(self._preloads(member.environment)):
            self.named.setdefault(member.environment, modules)
        command = ChildCommand(
            [sys.executable, "-m", self.program], marked, b"",
            with_result=True, with_pulse=True, is_own=True, is_pool=True, module=self.named.get(member.environment),
        )  # fmt: skip
        self.host.start_process(member.key, command, on_output)
        self._members[member.key] = member
        first = {"preload": self._preloads(member.environment), "max_memory": self.most_memory}
        self._send(member, json.dumps(first).encode() + b"\n")

    def _send(self, member: M, data: bytes) -> None:
        if (child := self.host.get_child(member.key)) and isinstance(child.feed, CallFeed):
            self.host.send(child.feed, data)

    def _read_answers(self, member: M, child: ChildProcess) -> None:
        if (answers := child.answers) is None:
            return
        while not answers.pipe.closed and answers.read_chunk():
            pass
        while answers.lines:
            self._read_answer(member, child, answers.lines.popleft())

    def _forget_modules(self, member: M, child_exit: ChildExit) -> None:
        """Let the next process preload no modules, because one of them may have ended this process."""
        log.warning(DIED_SILENTLY, pid=child_exit.pid, status=child_exit.status)
        self._modules.pop(member.environment, None)
        self.named.pop(member.environment, None)
