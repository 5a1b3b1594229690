"""Start, read, kill and reap the code of attempts, each below a reaper (reaper.py).

An attempt has ended when no process of it is left. If its reaper was killed, this process kills the rest (strays.py),
runs the cleanup, and only then reports the end, because the next attempt may start at once.
"""

from __future__ import annotations

import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog

from controlplane.agent.processes import attempt_mark, process_view, reaper
from controlplane.agent.processes.child_pipes import CallFeed, ChildPipes
from controlplane.agent.processes.child_process import KILL_INTERVAL, ChildCommand, ChildExit, ChildProcess
from controlplane.agent.processes.child_start import OutputHandler, start_below_reaper
from controlplane.agent.processes.fork_servers import ForkServer, ForkServers, for_imports
from controlplane.agent.processes.loop_pool import LoopPool
from controlplane.agent.processes.pool import Pool
from controlplane.agent.processes.pooled_call import Environment, PooledCall
from controlplane.agent.processes.server_file import ServerFile
from controlplane.agent.processes.strays import Strays

log = structlog.get_logger()
STRAYS_INTERVAL = 0.01  # seconds between two looks at processes that a killed reaper left behind
CLEANUP = "cleanup:"  # prefix of the key for the cleanup of a child whose reaper was killed
RETIRE_TIMEOUT = 1.0  # seconds for pool processes to end by themselves when the agent ends
CLOSE_TIMEOUT = 2.0  # seconds for killed processes to end when the agent ends


class Supervisor:
    """The child processes of a worker: the code of attempts, checks of the machine, lookups of secrets.

    Main thread only, except `kill_all_children` and `child_pid`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        calls_per_process: int = 1,
        slots: int = 1,
        memory_per_process: int | None = None,
        coroutines_per_process: int = 1,
    ) -> None:
        """`calls_per_process` limits the calls of a pool process, and those that are forked from one process (Linux).

        `slots` is the number of processes that run attempts at once. `memory_per_process` (bytes) limits pool
        processes. With `coroutines_per_process` above 1, each of them runs that many attempts at once.
        """
        self._pipes = ChildPipes(selector)
        is_linux = sys.platform == "linux"
        self._fork_servers = ForkServers(calls_per_process) if is_linux and calls_per_process > 1 else None
        self._pool: Pool | LoopPool | None = None
        if is_linux and coroutines_per_process > 1:
            self._pool = LoopPool(self, slots, coroutines_per_process, calls_per_process, memory_per_process)
        elif is_linux:
            self._pool = Pool(self, slots, calls_per_process, memory_per_process)
        self._children: dict[str, ChildProcess] = {}
        self._lock = threading.Lock()  # never reap a child while another thread signals it
        self._fence = b"=\n"
        self._adopts = self._is_preparing = False
        self._strays = Strays()
        self.server_file: ServerFile | None = None
        self.other_children: Callable[[], set[int]] = set

    def prepare(self, modules: Mapping[Environment, Iterable[str]]) -> None:
        """Start to import the modules that pool processes will need, by environment. They are forked from there."""
        if self._pool and self._fork_servers:
            self._pool.named = {environment: ",".join(names) for environment, names in modules.items()}
            for environment, names in self._pool.named.items():
                self._fork_servers.choose(names, for_imports(dict(environment)), is_needed=True)
            self._is_preparing = bool(modules)

    @property
    def is_preparing(self) -> bool:
        """Return True while the modules of `prepare` are imported. Pool processes that start now import them again."""
        self._is_preparing = self._is_preparing and bool(self._fork_servers and self._fork_servers.are_importing)
        return self._is_preparing

    def resize(self, processes: int) -> None:
        if self._pool:
            self._pool.slots = processes

    def __len__(self) -> int:
        return len(self._children)

    def adopt(self) -> None:
        """Become the parent of processes that a killed reaper leaves behind (Linux).

        This process may have no other children.
        """
        reaper.prctl(reaper.SUBREAPER, 1)
        self._adopts = True

    def child_pid(self, key: str) -> int | None:
        """Return the process id of the code, or of its reaper until the code has started. Any thread may call this."""
        child = self.get_child(key)
        return child.pid if child else None

    def get_child(self, key: str) -> ChildProcess | None:
        """Return a child process by its key, or by the attempt that runs in it."""
        return self._children.get(key) or (self._pool.child_of(key) if self._pool else None)

    def reaper_pid(self, key: str) -> int | None:
        """Return the process id of the reaper of a child. All processes below that reaper belong to the child."""
        child = self.get_child(key)
        return child.process.pid if child else None

    def memory_of_earlier(self, key: str) -> int:
        """Return the bytes that the process of an attempt kept from earlier attempts."""
        return self._pool.memory_of_earlier(key) if self._pool else 0

    def last_sign_at(self, key: str) -> float | None:
        """Return when the code gave its last sign of life, or was last seen able to run (monotonic time)."""
        if (child := self.get_child(key)) is None:
            return None
        if not child.gives_signs and process_view.look_below(child.process.pid).may_run:
            child.record_sign()
        return child.alive_at

    def look_at(self, key: str) -> process_view.ProcessView | None:
        child = self.get_child(key)
        return process_view.look_below(child.process.pid) if child else None

    def start_child(
        self,
        key: str,
        command: ChildCommand,
        on_output: OutputHandler = lambda stream, chunk: None,
        *,
        is_attempt: bool = False,
    ) -> None:
        """Start a command below a reaper. `on_output` gets all output. Raise OSError if no reaper can be started.

        `is_attempt`: the key is that of an attempt, which is marked beside the server's file while its code may run.
        """
        if command.in_pool and self._pool:
            self._pool.begin(PooledCall(key, command, on_output))
            return
        server = self._choose_fork_server(command)
        fork = partial(self._fork_servers.fork, server) if server and self._fork_servers else None
        file = self.server_file
        marker = file.write_marker(key, command.cleanup) if file and is_attempt else None
        child = start_below_reaper(key, command, on_output, fork, marker, file.lock if file else None)
        if child is None:  # the fork server has failed: try without it
            self.start_child(key, command, on_output, is_attempt=is_attempt)
            return
        with self._lock:
            self._children[key] = child
        child.report_state(self._fence)
        self._pipes.open(child.feed, child.streams)

    def start_process(self, key: str, command: ChildCommand, on_output: OutputHandler) -> None:
        """Start a pool process. It is marked like an attempt, because code of attempts runs in it."""
        self.start_child(key, command, on_output, is_attempt=True)
        os.set_blocking(self._children[key].feed.pipe.fileno(), False)

    def send(self, feed: CallFeed, data: bytes) -> None:
        """Write to a pool process, now or when it reads."""
        self._pipes.send(feed, data)

    def close_feed(self, child: ChildProcess) -> None:
        """Close the pipe of a pool process: it ends by itself."""
        self._pipes.close(child.feed)

    def _choose_fork_server(self, command: ChildCommand) -> ForkServer | None:
        """Return a process that has imported the module to call, or None. Processes it forks become our children."""
        if not (self._adopts and self._fork_servers and command.module):
            return None
        return self._fork_servers.choose(command.module, for_imports(command.env), is_needed=command.is_pool)

    def set_fence_deadline(self, deadline: float | None) -> None:
        """Set the uptime in seconds at which the reaper processes kill all code of jobs (None: never).

        They do so even if this agent is paused, for example by SIGSTOP.
        """
        self._fence = b"=\n" if deadline is None else f"={deadline!r}\n".encode()
        for child in self._children.values():
            child.report_state(self._fence)

    def kill_child(self, key: str, patience: float = 0.0) -> bool:
        """Send SIGKILL to a child, or SIGTERM first if `patience` (seconds) is set.

        Return False if the child has exited by itself.
        """
        child = self.get_child(key)
        if child is None or child.has_exited_by_itself():
            return False
        if key not in self._children and self._pool:
            return self._pool.kill(key, patience)
        child.kill_after(patience)
        return True

    def kill_all_children(self) -> None:
        """Send SIGKILL to all children. Any thread may call this."""
        with self._lock:
            for child in self._children.values():
                child.kill_child()

    def close(self) -> None:
        """Kill all children, and wait a moment for their end. Pool processes without a call end by themselves."""
        if self._pool:
            self._pool.retire_all()
            until = time.monotonic() + RETIRE_TIMEOUT
            while self._pool.has_retired and time.monotonic() < until:
                self.reap_children()
                time.sleep(0.01)
        self.kill_all_children()
        until = time.monotonic() + CLOSE_TIMEOUT
        while self._children and time.monotonic() < until:
            self.reap_children()
            time.sleep(0.01)
        if self._fork_servers:
            self._fork_servers.close()

    def transfer_ready(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        """Read from and write to the pipes that are ready, without waiting."""
        self._pipes.transfer_ready(ready)

    def reap_children(self) -> list[ChildExit]:
        """Kill children whose time is over. Return the children that have ended: no process of them is left.

        A call of a pool process has ended when its function has returned and left no processes.
        """
        calls = self._pool.take_ended() if self._pool else []
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at is not None and now >= child.kill_at:
                child.kill_child()
                child.kill_at = now + KILL_INTERVAL
        ended = [child for child in self._children.values() if child.has_ended()]
        if self._fork_servers:
            self._fork_servers.reap()
        if self._adopts and (ended or self._strays.are_left):
            reapers = {child.process.pid for child in self._children.values()}
            servers = self._fork_servers.pids() if self._fork_servers else set()
            if not self._strays.end(reapers | servers | self.other_children()):
                return calls  # they may belong to any attempt whose reaper was killed
        ended.sort(key=lambda child: not child.key.startswith(CLEANUP))
        exits = [self._reap_child(child) for child in ended if self._is_cleaned_up(child)]
        calls += self._pool.take_ended() if self._pool and ended else []
        return calls + [end for end in exits if not end.key.startswith((CLEANUP, attempt_mark.POOLED))]

    def next_kill_at(self) -> float | None:
        """Return the time (monotonic) of the next kill or look.

        A look is due while processes of a killed reaper are left, and while modules are imported.
        """
        due = [child.kill_at for child in self._children.values() if child.kill_at is not None]
        looks = self._strays.are_left or self._is_preparing
        return min([*due, time.monotonic() + STRAYS_INTERVAL] if looks else due, default=None)

    def _is_cleaned_up(self, child: ChildProcess) -> bool:
        """Return True if the cleanup of an ended child is done. Otherwise start another reaper for it."""
        if not child.status.pipe.closed:
            child.status.read_chunk()
        if not child.awaits_cleanup:
            return True
        key, nothing = f"{CLEANUP}{child.key}", ["/bin/sh", "-c", ":"]
        if key not in self._children:
            try:
                self.start_child(key, ChildCommand(nothing, child.command.env, b"", cleanup=child.command.cleanup))
            except OSError as error:  # the next look tries again
                log.warning("The cleanup of a job could not start yet", key=child.key, why=str(error))
        return False

    def _reap_child(self, child: ChildProcess) -> ChildExit:
        with self._lock:
            del self._children[child.key]
            status = child.process.wait()
            child.control.close()
        if self.server_file:
            self.server_file.remove_marker(child.key)
        self._pipes.close(child.feed)
        for stream in child.streams:
            self._pipes.read_rest(stream)
        if original := self._children.get(child.key.removeprefix(CLEANUP)):
            original.status.data += b"~\n" + child.cleanup_output.encode()
        child_exit = child.describe_exit(status)
        if self._pool and child.answers:
            self._pool.record_end(child, child_exit)
        return child_exit
