"""The pool processes of a worker with `--async N`, on Linux: each runs up to N calls at once (loop_child.py).

A call that is cancelled or times out gets a CancelledError. If it does not end then, its process is killed. The other
calls of that process are given back. Main thread only.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field, replace

import structlog

from controlplane.agent.processes.child_process import ChildExit, ChildProcess
from controlplane.agent.processes.pooled_call import Environment, PooledCall
from controlplane.agent.processes.process_pool import (
    DELIVERIES,
    NEVER_BEGUN,
    RETIRE_PATIENCE,
    Member,
    PoolHost,
    ProcessPool,
)

log = structlog.get_logger()
CANCEL_PATIENCE = 2.0  # seconds in which a coroutine may end after its CancelledError


@dataclass
class LoopCall:
    call: PooledCall
    has_begun: bool = False
    result: bytes = b""
    killed_at: float | None = None  # monotonic time at which its process is killed if it has not ended by itself


@dataclass
class LoopMember(Member):
    """A pool process and the calls that it runs, or will run when it is ready."""

    calls: dict[str, LoopCall] = field(default_factory=dict)
    total: int = 0

    @property
    def is_busy(self) -> bool:
        return bool(self.calls)


class LoopPool(ProcessPool[LoopMember]):
    """Each process runs at most `at_once` calls at once."""

    program = "controlplane.agent.processes.loop_child"

    def __init__(
        self, host: PoolHost, slots: int, at_once: int, most_calls: int, most_memory: int | None = None
    ) -> None:
        super().__init__(host, slots, most_calls, most_memory)
        self.at_once = at_once

    def begin(self, call: PooledCall) -> None:
        """Run a call in the process with the fewest calls, or in a new one. Raise OSError if none can be started."""
        environment = call.environment
        of_kind = [one for one in self._members.values() if one.environment == environment and not one.is_retired]
        free = [one for one in of_kind if len(one.calls) < self.at_once]
        member = min(free, key=lambda one: len(one.calls), default=None)
        if member is None or (member.calls and len(self._members) < self.slots):
            for one in self._members.values():
                if not one.calls and len(self._members) >= self.slots:
                    self._retire(one, "")  # it has other variables
            member = self._start(environment)
        self._assign(member, call)

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

    def record_end(self, child: ChildProcess, child_exit: ChildExit) -> None:
        """Record the end of a process. Its calls have ended too, except those that had not begun."""
        member = self._members[child.key]
        self._read_answers(member, child)
        del self._members[member.key]
        if not (member.is_ready or member.is_retired or child.was_killed):
            self._forget_modules(member, child_exit)
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

    def _start(self, environment: Environment) -> LoopMember:
        member = LoopMember(self._new_key(), environment)
        # Output that belongs to no call is dropped. The process reports the output of each call by itself.
        self._start_process(member, lambda stream, chunk: None)
        return member

    def _assign(self, member: LoopMember, call: PooledCall) -> None:
        call.deliveries += 1
        member.total += 1
        member.calls[call.key] = LoopCall(call)
        self._by_call[call.key] = member
        self._send(member, call.encode())
        if member.total >= self.most_calls:
            self._retire(member, f"it ran {member.total} attempts", call)

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
            # Processes that it left behind end now, and only then the attempt has ended.
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
