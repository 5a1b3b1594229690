"""The pool processes of a worker with `--async N`, on Linux: each runs up to N calls at once (loop_child.py).

A call that is cancelled or times out gets a CancelledError. If it does not end then, its process is killed. The other
calls of that process are given back. Main thread only.
"""

from __future__ import annotations

import json
import math
import sys
import time
import uuid
from dataclasses import dataclass, field, replace

import structlog

from controlplane.agent.processes import attempt_mark
from controlplane.agent.processes.child_process import CallFeed, ChildCommand, ChildExit, ChildProcess
from controlplane.agent.processes.pool import DELIVERIES, DIED_SILENTLY, NEVER_BEGUN, PRELOADED, PoolHost
from controlplane.agent.processes.pool_member import Environment, PooledCall

log = structlog.get_logger()
PROGRAM = "controlplane.agent.processes.loop_child"
CANCEL_PATIENCE = 2.0  # seconds in which a coroutine may end after its CancelledError
RETIRE_PATIENCE = 5.0  # seconds in which a process without calls ends by itself


@dataclass
class LoopCall:
    call: PooledCall
    has_begun: bool = False
    result: bytes = b""
    killed_at: float | None = None  # monotonic time at which its process is killed if it has not ended by itself


@dataclass
class LoopMember:
    """A pool process and the calls that it runs, or will run when it is ready."""

    key: str
    environment: Environment
    calls: dict[str, LoopCall] = field(default_factory=dict)
    total: int = 0
    is_ready: bool = False
    is_retired: bool = False


@dataclass
class LoopPool:
    """`slots` processes run at most `at_once` calls each. `most_calls` and `most_memory` (bytes) limit their lives."""

    host: PoolHost
    slots: int
    at_once: int
    most_calls: int
    most_memory: int | None = None
    _members: dict[str, LoopMember] = field(default_factory=dict)
    _by_call: dict[str, LoopMember] = field(default_factory=dict)
    _modules: dict[Environment, dict[str, None]] = field(default_factory=dict)  # whose calls have returned
    _ended: list[ChildExit] = field(default_factory=list)
    _is_closed: bool = False

    def begin(self, call: PooledCall) -> None:
        """Run a call in the process with the fewest calls, or in a new one. Raise OSError if none can be started."""
        of_kind = [one for one in self._members.values() if one.environment == call.environment and not one.is_retired]
        free = [one for one in of_kind if len(one.calls) < self.at_once]
        member = min(free, key=lambda one: len(one.calls), default=None)
        if member is None or (member.calls and len(self._members) < self.slots):
            for one in self._members.values():
                if not one.calls and len(self._members) >= self.slots:
                    self._retire(one, "")  # it has other variables
            member = self._start(call.environment)
        self._assign(member, call)

    def child_of(self, key: str) -> ChildProcess | None:
        """Return the process that runs a call, or that will."""
        member = self._by_call.get(key)
        return self.host.get_child(member.key) if member else None

    def kill(self, key: str, patience: float = 0.0) -> bool:
        """Cancel a call, and kill its process `patience` seconds later. Return False if the call has ended."""
        member = self._by_call[key]
        if (child := self.host.get_child(member.key)) is None:
            return False
        self._read_answers(member, child)
        if (one := member.calls.get(key)) is None or one.result:
            return False
        if one.killed_at is None:
            self._send(member, b"C %s\n" % key.encode())
        one.killed_at = min(one.killed_at or math.inf, time.monotonic() + max(patience, CANCEL_PATIENCE))
        self._set_kill_time(member, child)
        return True

    def take_ended(self) -> list[ChildExit]:
        """Return the calls that have ended."""
        for member in list(self._members.values()):
            if (child := self.host.get_child(member.key)) and child.answers and child.answers.lines:
                self._read_answers(member, child)
        ended, self._ended = self._ended, []
        return ended

    def record_end(self, child: ChildProcess, child_exit: ChildExit) -> None:
        """Record the end of a process. Its calls have ended too, except those that had not begun."""
        member = self._members[child.key]
        self._read_answers(member, child)
        del self._members[member.key]
        if not (member.is_ready or member.is_retired or child.was_killed):
            log.warning(DIED_SILENTLY, pid=child_exit.pid, status=child_exit.status)
            self._modules.pop(member.environment, None)
        for key, one in list(member.calls.items()):
            if one.has_begun or one.killed_at is not None:
                is_bystander = child.was_killed and not one.result and one.killed_at is None
                self._end_call(member, key, replace(child_exit, is_bystander=is_bystander))
                continue
            del member.calls[key]
            try:
                if one.call.deliveries >= DELIVERIES:
                    raise OSError(NEVER_BEGUN)
                self.begin(one.call)
            except OSError as error:
                member.calls[key] = one
                self._end_call(member, key, replace(child_exit, problem=str(error), is_of_machine=True))

    def memory_of_earlier(self, key: str) -> int:
        """Return 0: a worker with `--async` has no memory limit for each attempt."""
        return 0

    def retire_all(self) -> None:
        """Let the processes without a call end by themselves."""
        self._is_closed = True
        for member in self._members.values():
            if not member.calls:
                self._retire(member, "")

    @property
    def has_retired(self) -> bool:
        return any(member.is_retired for member in self._members.values())

    def _start(self, environment: Environment) -> LoopMember:
        key = f"{attempt_mark.POOLED}{uuid.uuid4()}"
        modules = list(self._modules.get(environment, ()))[-PRELOADED:]
        member = LoopMember(key, environment)
        marked = {**dict(environment), attempt_mark.POOL_NAME: key}
        command = ChildCommand(
            [sys.executable, "-m", PROGRAM], marked, b"", with_result=True, with_pulse=True, is_own=True, is_pool=True
        )
        # Output that belongs to no call is dropped. The process reports the output of each call by itself.
        self.host.start_process(key, command, lambda stream, chunk: None)
        self._members[key] = member
        self._send(member, json.dumps({"preload": modules, "max_memory": self.most_memory}).encode() + b"\n")
        return member

    def _assign(self, member: LoopMember, call: PooledCall) -> None:
        call.deliveries += 1
        member.total += 1
        member.calls[call.key] = LoopCall(call)
        self._by_call[call.key] = member
        self._send(member, call.encode())
        if member.total >= self.most_calls:
            self._retire(member, f"it ran {member.total} attempts", call)

    def _send(self, member: LoopMember, data: bytes) -> None:
        if (child := self.host.get_child(member.key)) and isinstance(child.feed, CallFeed):
            self.host.send(child.feed, data)

    def _read_answers(self, member: LoopMember, child: ChildProcess) -> None:
        if (answers := child.answers) is None:
            return
        while not answers.pipe.closed and answers.read_chunk():
            pass
        while answers.lines:
            self._read_answer(member, child, answers.lines.popleft())

    def _read_answer(self, member: LoopMember, child: ChildProcess, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        if kind == b"R":
            member.is_ready = True
            return
        name, _, rest = rest.partition(b" ")
        key = name.decode(errors="replace")
        if (one := member.calls.get(key)) is None:
            return  # code in this process may write anything
        if kind == b"B":
            one.has_begun = True
        elif kind == b"O":
            stream, _, text = rest.partition(b" ")
            one.call.on_output(stream.decode(), json.loads(text).encode(errors="surrogatepass"))
        elif kind == b"N":
            del member.calls[key]
            self._retire(member, rest.decode(errors="replace"), one.call)
            self._begin_elsewhere(member, child, one.call)
        elif kind == b"E":
            why, _, one.result = rest.partition(b"\t")
            self._record_result(member, child, one, why.decode(errors="replace"))

    def _begin_elsewhere(self, member: LoopMember, child: ChildProcess, call: PooledCall) -> None:
        try:
            self.begin(call)
        except OSError as error:
            member.calls[call.key] = LoopCall(call)
            failed = ChildExit(call.key, child.pid, 0, b"", b"", problem=str(error), is_of_machine=True)
            self._end_call(member, call.key, failed)

    def _record_result(self, member: LoopMember, child: ChildProcess, one: LoopCall, why: str) -> None:
        self._modules.setdefault(member.environment, {})[one.call.module] = None
        if self.host.get_child(member.key) is None:
            return  # it has ended since: `record_end` ends the call
        if why and len(member.calls) == 1:
            # What was left behind ends now, and only then the attempt has ended.
            member.is_retired = True
            log.info("Pool process replaced", why=why, pid=child.pid, **one.call.describe())
            child.kill_child()
            child.kill_at = time.monotonic() + 1.0
            return
        self._end_call(member, one.call.key, ChildExit(one.call.key, child.pid, 0, b"", b"", gave_signs=True))
        self._set_kill_time(member, child)

    def _end_call(self, member: LoopMember, key: str, child_exit: ChildExit) -> None:
        one = member.calls.pop(key)
        self._by_call.pop(key, None)
        status = 0 if one.result else child_exit.status
        self._ended.append(replace(child_exit, key=key, status=status, result=one.result))

    def _set_kill_time(self, member: LoopMember, child: ChildProcess) -> None:
        """Let the supervisor kill the process when a cancelled call must have ended, or when nothing is left to do."""
        if not child.was_killed:
            due = [one.killed_at for one in member.calls.values() if one.killed_at is not None]
            if member.is_retired and not member.calls:
                due.append(time.monotonic() + RETIRE_PATIENCE)
            child.kill_at = min(due, default=None)

    def _retire(self, member: LoopMember, why: str, call: PooledCall | None = None) -> None:
        """Let a process end by itself after its calls. It gets no other call."""
        if member.is_retired or (child := self.host.get_child(member.key)) is None:
            return
        member.is_retired = True
        if why:
            log.info("Pool process replaced", why=why, pid=child.pid, **(call.describe() if call else {}))
        self._send(member, b"Q\n")
        self._set_kill_time(member, child)
