"""The code of attempts, each below a reaper (reaper.py): start, kill, read, reap."""

from __future__ import annotations

import contextlib
import marshal
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import IO

import structlog

from controlplane.agent import process_view, reaper
from controlplane.agent.child_process import CHUNK, ChildCommand, ChildExit, ChildProcess, InputFeed, OutputTail
from controlplane.agent.fork_servers import ForkedProcess, ForkServer, ForkServers
from controlplane.agent.limits import RESULT_KEPT

OutputHandler = Callable[[str, bytes], None]  # with STDOUT or STDERR

log = structlog.get_logger()
STDOUT_KEPT = 16 * 1024
STDERR_KEPT = 4 * 1024
PULSE_KEPT = 1  # bytes, which say that there were any
AGAIN = 1.0  # seconds between two tries to kill what does not end
INHERITED = {name: os.environ[name] for name in ["LD_LIBRARY_PATH"] if name in os.environ}  # our Python may need it
LAST_MOMENT = 2.0  # seconds for what is killed as we end


class Supervisor:
    """Everything but `kill_all_children` belongs to the main thread."""

    def __init__(self, selector: selectors.BaseSelector, calls_per_process: int = 1) -> None:
        """`calls_per_process`: of functions, as many are forked from one that has imported their module (Linux)."""
        self._selector = selector
        is_warm = calls_per_process > 1 and sys.platform == "linux"
        self._fork_servers = ForkServers(calls_per_process) if is_warm else None
        self._children: dict[str, ChildProcess] = {}
        self._lock = threading.Lock()  # a child is reaped or signalled from another thread, never both at once
        self._fence = b"=\n"
        self._adopts = False
        self._strays: set[int] = set()

    def __len__(self) -> int:
        return len(self._children)

    def adopt(self) -> None:
        """From now on what a killed reaper leaves behind is ours, and killed: no other children may be in this process.

        Only on Linux.
        """
        reaper.prctl(reaper.SUBREAPER, 1)
        self._adopts = True

    def child_pid(self, key: str) -> int | None:
        """From any thread: of the code, or of the reaper while that is still about to start it."""
        child = self._children.get(key)
        return child.pid if child else None

    def reaper_pid(self, key: str) -> int | None:
        """All that descends from it is of that child."""
        child = self._children.get(key)
        return child.process.pid if child else None

    def last_sign_at(self, key: str) -> float | None:
        """Monotonic: when its code gave its last sign of life, or was seen to be able to run."""
        if (child := self._children.get(key)) is None:
            return None
        if not child.gives_signs and process_view.look_below(child.process.pid).may_run:
            child.record_sign()
        return child.alive_at

    def look_at(self, key: str) -> process_view.ProcessView | None:
        child = self._children.get(key)
        return process_view.look_below(child.process.pid) if child else None

    def start_child(
        self, key: str, command: ChildCommand, on_output: OutputHandler = lambda stream, chunk: None
    ) -> None:
        """Raises OSError when there can be no reaper. `on_output` is told all that the code writes."""
        argv, server = list(command.argv), self._choose_fork_server(command)
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            beats, pulse = _pipe(ours, theirs) if command.with_pulse else (None, None)
            result = ours.enter_context(tempfile.TemporaryFile()) if command.with_result else None
            descriptors = [file.fileno() for file in (result, pulse) if file]
            argv += map(str, descriptors)
            what = theirs.enter_context(tempfile.TemporaryFile())
            what.write(marshal.dumps((argv, command.env, command.cwd, descriptors, command.cleanup)))
            what.seek(0)
            listening, control = _pipe(theirs, ours)
            says, status = _pipe(ours, theirs)
            reads, stdin = _pipe(theirs, ours)
            (stdout, writes), (stderr, complains) = _pipe(ours, theirs), _pipe(ours, theirs)
            passed = [what.fileno(), listening.fileno(), status.fileno()]
            streams = [reads.fileno(), writes.fileno(), complains.fileno()]
            process: ForkedProcess | subprocess.Popen[bytes] | None
            if server and self._fork_servers:
                process = self._fork_servers.fork(server, [*passed, *streams, *descriptors])
            else:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", reaper.__file__, *map(str, passed)],
                    env=INHERITED,  # what the job says of its environment is for its code alone
                    stdin=reads,
                    stdout=writes,
                    stderr=complains,
                    pass_fds=[*passed, *descriptors],
                    start_new_session=True,
                )
            if process:
                ours.pop_all()
        if process is None:
            self.start_child(key, command, on_output)  # that server is gone
            return
        os.set_blocking(control.fileno(), False)  # a reaper that was stopped must not stop us
        child = ChildProcess(
            key,
            process,
            control,
            InputFeed(stdin, memoryview(command.stdin)),
            (
                OutputTail(stdout, STDOUT_KEPT, partial(on_output, "STDOUT")),
                OutputTail(stderr, STDERR_KEPT, partial(on_output, "STDERR")),
            ),
            OutputTail(says, CHUNK, lambda chunk: None),
            result,
        )
        if beats:
            child.pulse = OutputTail(beats, PULSE_KEPT, lambda chunk: child.record_sign())
        with self._lock:
            self._children[key] = child
        child.report_state(self._fence)
        self._register_stream(child.feed, selectors.EVENT_WRITE)
        for tail in child.streams:
            self._register_stream(tail, selectors.EVENT_READ)
        self._go_on(child.feed)

    def _choose_fork_server(self, command: ChildCommand) -> ForkServer | None:
        """A process that has imported what is called; what it forks becomes our child."""
        if not (self._adopts and self._fork_servers and command.module):
            return None
        environment = {name: value for name, value in command.env.items() if not name.startswith("JOB_")}
        return self._fork_servers.choose(command.module, environment)

    def set_fence_deadline(self, deadline: float | None) -> None:
        """Have all killed at that reading of the uptime clock (None: never), whatever has become of us."""
        self._fence = b"=\n" if deadline is None else f"={deadline!r}\n".encode()
        for child in self._children.values():
            child.report_state(self._fence)

    def kill_child(self, key: str, patience: float = 0.0) -> bool:
        """SIGKILL all of it, after a SIGTERM and `patience` seconds if given. False: it had ended by itself."""
        child = self._children.get(key)
        if child is None or child.has_exited_by_itself():
            return False
        now = time.monotonic()
        if patience <= 0:
            child.kill_child()
            child.kill_at = now + AGAIN
        elif child.kill_at is None:
            child.kill_at = now + patience
            child.terminate()
        else:
            child.kill_at = min(child.kill_at, now + patience)
        return True

    def kill_all_children(self) -> None:
        """SIGKILL everything. From any thread."""
        with self._lock:
            for child in self._children.values():
                child.kill_child()

    def close(self) -> None:
        """Kill everything, and see for a moment that it ends."""
        self.kill_all_children()
        until = time.monotonic() + LAST_MOMENT
        while self._children and time.monotonic() < until:
            self.reap_children()
            time.sleep(0.01)
        if self._fork_servers:
            self._fork_servers.close()

    def transfer_ready(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        """Read and write what can be, without waiting."""
        for key, _ in ready:
            if isinstance(key.data, OutputTail | InputFeed):
                self._go_on(key.data)

    def reap_children(self) -> list[ChildExit]:
        """Escalate what is due, collect what has ended."""
        now = time.monotonic()
        for child in self._children.values():
            if child.kill_at is not None and now >= child.kill_at:
                child.kill_child()
                child.kill_at = now + AGAIN
        ended = [self._reap_child(child) for child in list(self._children.values()) if child.has_ended()]
        if self._fork_servers:
            self._fork_servers.reap()
        if self._adopts and (ended or self._strays):
            self._end_strays()
        return ended

    def next_kill_at(self) -> float | None:
        """Monotonic time of the next escalation."""
        return min((child.kill_at for child in self._children.values() if child.kill_at is not None), default=None)

    def _reap_child(self, child: ChildProcess) -> ChildExit:
        with self._lock:
            del self._children[child.key]
            status = child.process.wait()
            child.control.close()
        self._close_stream(child.feed)
        for tail in child.streams:
            # Bounded: something that escaped may hold the pipe and write for ever.
            for _ in range(32):
                if tail.pipe.closed or not tail.read_chunk():
                    break
            self._close_stream(tail)
        result = b""
        if child.result:
            with child.result:
                child.result.seek(0)
                result = child.result.read(RESULT_KEPT + 1)
        stdout, stderr = (bytes(tail.data) for tail in child.tails)
        return ChildExit(child.key, child.pid, status, stdout, stderr, result, child.problem, child.remains)

    def _end_strays(self) -> None:
        reapers = {child.process.pid for child in self._children.values()}
        servers = self._fork_servers.pids() if self._fork_servers else set()
        strays = set(reaper.children(os.getpid())) - reapers - servers
        for pid in strays:
            if pid not in self._strays:
                log.warning("A process outlived its reaper: killed", pid=pid)
            reaper.signal_tree(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._strays = strays

    def _go_on(self, stream: OutputTail | InputFeed) -> None:
        try:
            if stream.transfer_data():
                return
        except Exception:  # whatever it is: it is of this attempt, and costs no other
            log.exception("A job's stream is closed")
        self._close_stream(stream)

    def _register_stream(self, stream: OutputTail | InputFeed, event: int) -> None:
        os.set_blocking(stream.pipe.fileno(), False)
        self._selector.register(stream.pipe, event, stream)

    def _close_stream(self, stream: OutputTail | InputFeed) -> None:
        if not stream.pipe.closed:
            self._selector.unregister(stream.pipe)
            stream.pipe.close()


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Both ends, each closed with its stack."""
    here, there = os.pipe()
    return reads.enter_context(open(here, "rb", buffering=0)), writes.enter_context(open(there, "wb", buffering=0))
