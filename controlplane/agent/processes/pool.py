"""The pool processes of a worker (pool_child.py), on Linux: each calls one function after the other, below its reaper.

A process runs one attempt at a time. It is killed with everything below it when that attempt is killed, and it is
replaced when an attempt leaves something behind. One more process than needed is ready ahead of time. Main thread only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import structlog

from controlplane.agent.processes.child_process import ChildExit, ChildProcess
from controlplane.agent.processes.pooled_call import Environment, PooledCall
from controlplane.agent.processes.process_pool import DELIVERIES, NEVER_BEGUN, RETIRE_PATIENCE, Member, ProcessPool
from controlplane.agent.processes.process_view import resident_bytes

log = structlog.get_logger()


@dataclass
class PoolMember(Member):
    """A pool process. It runs `call`, or will when it is ready."""

    preloads: bool = False
    call: PooledCall | None = None
    is_killed: bool = False  # with its attempt
    calls: int = 0
    memory_when_new: int = 0  # bytes, this and the next one
    memory_of_earlier: int = 0  # kept from the calls before the present one
    result: bytes = b""

    @property
    def is_busy(self) -> bool:
        return self.call is not None

    @property
    def is_idle(self) -> bool:
        return self.is_ready and self.call is None and not self.is_retired and not self.is_killed

    def write_output(self, stream: str, chunk: bytes) -> None:
        if self.call:  # output between two attempts belongs to none
            self.call.on_output(stream, chunk)


class Pool(ProcessPool[PoolMember]):
    """Each process runs one attempt after the other."""

    program = "controlplane.agent.processes.pool_child"

    def begin(self, call: PooledCall) -> None:
        """Run a call in a process that is ready, or in a new one. Raise OSError if none can be started."""
        environment = call.environment
        of_kind = [one for one in self._members.values() if not one.call and one.environment == environment]
        idle = [one for one in of_kind if one.is_idle]
        starting = [one for one in of_kind if not (one.is_ready or one.is_retired or one.is_killed)]
        # The process that was used last has the most in its caches.
        member = max(idle, key=lambda one: one.calls) if idle else next(iter(starting), None)
        if member is None:
            member = self._start(environment)
        self._assign(member, call)

    def kill(self, key: str, patience: float = 0.0) -> bool:
        """Kill the process of a call, after `patience` seconds. Return False if the call has ended already."""
        member = self._by_call[key]
        if (child := self.host.get_child(member.key)) is None:
            return False
        self._read_answers(member, child)
        if self._by_call.get(key) is not member or member.result:
            return False
        member.is_killed = True
        child.kill_after(patience)
        return True

    def take_ended(self) -> list[ChildExit]:
        ended = super().take_ended()
        if ended:
            self._keep_spare()
        return ended

    def record_end(self, child: ChildProcess, child_exit: ChildExit) -> None:
        """Record the end of a pool process with everything below it."""
        member = self._members[child.key]
        was_ready = member.is_ready
        self._read_answers(member, child)
        del self._members[member.key]
        if (call := member.call) is None:
            if not (was_ready or member.is_retired or member.is_killed or self._is_closed):
                self._forget_modules(member, child_exit)
            return
        has_begun = child_exit.result.partition(b"\n")[0] == call.key.encode()
        if not (has_begun or member.is_killed or child.was_killed):
            if not was_ready and (member.preloads or member.environment in self.named):
                self._forget_modules(member, child_exit)
            try:
                if call.deliveries < DELIVERIES:
                    self._assign(self._start(member.environment), call)
                    return
                if was_ready or child_exit.status <= 0:
                    child_exit = replace(child_exit, problem=NEVER_BEGUN, is_of_machine=True)
            except OSError as error:
                child_exit = replace(child_exit, problem=str(error), is_of_machine=True)
        self._end_call(member, child_exit)

    def memory_of_earlier(self, key: str) -> int:
        """Return the bytes that the process of a call kept from earlier calls."""
        return member.memory_of_earlier if (member := self._by_call.get(key)) else 0

    def _start(self, environment: Environment) -> PoolMember:
        member = PoolMember(self._new_key(), environment, preloads=bool(self._preloads(environment)))
        self._start_process(member, member.write_output)
        return member

    def _assign(self, member: PoolMember, call: PooledCall) -> None:
        member.call, member.result = call, b""
        call.deliveries += 1
        self._by_call[call.key] = member
        if member.is_ready:
            self._send_call(member, call)

    def _send_call(self, member: PoolMember, call: PooledCall) -> None:
        member.calls += 1
        if child := self.host.get_child(member.key):
            child.record_sign()
            for tail in child.tails:
                tail.data.clear()
            self._look_at_memory(member, child)
        self._send(member, call.encode())

    def _look_at_memory(self, member: PoolMember, child: ChildProcess) -> None:
        """Record the memory before a call, so that the call does not count for what earlier ones left."""
        if self.most_memory is not None and child.has_begun:
            size = resident_bytes(child.pid)
            member.memory_when_new = member.memory_when_new or size
            member.memory_of_earlier = max(0, size - member.memory_when_new)

    def _read_answer(self, member: PoolMember, child: ChildProcess, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        call = member.call
        if kind == b"R" and not member.is_ready:
            member.is_ready = True
            if call and not member.is_killed:
                self._send_call(member, call)
            return
        key, _, rest = rest.partition(b" ")
        if call is None or key != call.key.encode():
            return  # code in this process may write anything
        if member.is_killed:
            if not member.result:
                child.kill_child()  # its code has ended before the SIGKILL
            return
        if kind == b"N":
            member.call = None
            self._retire(member, rest.decode(errors="replace"), call)
            try:
                self._assign(self._start(member.environment), call)
            except OSError as error:
                self._end_call(
                    member, ChildExit(call.key, child.pid, 0, b"", b"", problem=str(error), is_of_machine=True), call
                )
        elif kind == b"E":
            why, _, member.result = rest.partition(b"\t")
            self._record_result(member, child, call, why.decode(errors="replace"))

    def _record_result(self, member: PoolMember, child: ChildProcess, call: PooledCall, why: str) -> None:
        for tail in child.tails:
            for _ in range(32):  # limited: a thread that stays may write forever
                if tail.pipe.closed or not tail.read_chunk():
                    break
        self._modules.setdefault(member.environment, {})[call.module] = None
        if self.host.get_child(member.key) is None:
            return  # it has ended since: `record_end` ends the call
        if why:
            # Processes that it left behind end now, and only then the attempt has ended.
            member.is_killed = True
            log.info("Pool process replaced", why=why, pid=child.pid, **call.describe())
            child.kill_child()
            child.kill_at = time.monotonic() + 1.0
            return
        stdout, stderr = (bytes(tail.data) for tail in child.tails)
        self._end_call(member, ChildExit(call.key, child.pid, 0, stdout, stderr, member.result, gave_signs=True))
        if member.calls >= self.most_calls:
            self._retire(member, f"it ran {member.calls} attempts", call)

    def _end_call(self, member: PoolMember, child_exit: ChildExit, call: PooledCall | None = None) -> None:
        call = call or member.call
        member.call = None
        if call:
            self._by_call.pop(call.key, None)
            status = 0 if member.result else child_exit.status
            self._ended.append(replace(child_exit, key=call.key, status=status, result=member.result))

    def _retire(self, member: PoolMember, why: str, call: PooledCall | None = None) -> None:
        """Let a process end by itself. It gets no other call."""
        if member.is_retired:
            return
        member.is_retired = True
        if (child := self.host.get_child(member.key)) is None:
            return
        if why:
            log.info("Pool process replaced", why=why, pid=child.pid, **(call.describe() if call else {}))
        self.host.close_feed(child)
        child.kill_at = time.monotonic() + RETIRE_PATIENCE

    def _keep_spare(self) -> None:
        """Start one process ahead of time, and end idle processes beyond the slots and one spare."""
        if self._is_closed:
            return
        members = [one for one in self._members.values() if not (one.is_retired or one.is_killed)]
        free = [one for one in members if not one.call]
        for environment in self._modules:
            if len(members) <= self.slots and not any(one.environment == environment for one in free):
                try:
                    members.append(self._start(environment))
                except OSError as error:
                    log.info("No spare pool process", why=str(error))
                    return
        for member in free[: max(0, len(members) - self.slots - 1)]:
            self._retire(member, "")
