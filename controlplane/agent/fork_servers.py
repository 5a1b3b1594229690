"""The processes from which calls of functions are forked (fork_server.py), one for each module that is called again.

Main thread only. All of it is haste: whatever does not work here, the call begins in a new interpreter.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import structlog

from controlplane.agent.fork_server import READY

log = structlog.get_logger()
MODULES_KEPT = 8  # fork servers at once; another module's replaces the one that was idle for longest
MODULES_COUNTED = 1000
PATIENCE = 2.0  # seconds for a fork: the main thread waits for it


class ForkedProcess:
    """A process that was forked for us and became our child, as far as subprocess.Popen would be asked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


Key = tuple[str, frozenset[tuple[str, str]]]
"""A module, and the environment in which it is imported."""


class ForkServer:
    """Raises OSError when it cannot be started."""

    def __init__(self, key: Key) -> None:
        self.key, self.calls, self.is_fit = key, 0, False
        module, environment = key
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controlplane.agent.fork_server", module, str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """False: it still imports its module. Raises OSError when it never will be."""
        if not self.is_fit:
            self._channel.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                self.is_fit = self._receive() == READY
        return self.is_fit

    def fork(self, descriptors: Sequence[int]) -> ForkedProcess:
        """A process that was given these. Raises OSError when there is none."""
        self._channel.settimeout(PATIENCE)
        socket.send_fds(self._channel, [b"fork"], descriptors)
        pid = int(self._receive())
        self.calls += 1
        return ForkedProcess(pid)

    def close(self) -> None:
        """It ends."""
        self._channel.close()
        self.process.kill()

    def _receive(self) -> bytes:
        answer = self._channel.recv(1000)
        if not answer or answer.startswith(b"!"):
            raise OSError(answer[1:].decode(errors="replace") or "it has ended")
        return answer


class ForkServers:
    """`most_calls`: of one process, which is replaced then, as soon as the next one has imported the module."""

    def __init__(self, most_calls: int) -> None:
        self._most_calls = most_calls
        self._servers: OrderedDict[Key, ForkServer] = OrderedDict()
        self._next: dict[Key, ForkServer] = {}  # not ready yet; the one before goes on meanwhile
        self._ended: list[ForkServer] = []
        self._is_unfit: dict[Key, bool] = {}  # of modules that were called: it has failed once, so it is left alone

    def pids(self) -> set[int]:
        return {server.process.pid for server in (*self._servers.values(), *self._next.values(), *self._ended)}

    def choose(self, module: str, environment: Mapping[str, str]) -> ForkServer | None:
        """One that is ready for a call of the module. None: not this time."""
        key = module, frozenset(environment.items())
        try:
            self._replace(key)
            server = self._servers.get(key)
            if server is None:
                self._consider(key)
                return None
            self._servers.move_to_end(key)
            return server if server.is_ready() else None
        except OSError as error:
            self._give_up(key, error, is_unfit=True)
            return None

    def fork(self, server: ForkServer, descriptors: Sequence[int]) -> ForkedProcess | None:
        """None: it could not, and is there no more. It may all the same have begun to: nobody else may be given these
        descriptors, and ours of their other ends are to be closed."""
        try:
            process = server.fork(descriptors)
        except OSError as error:
            self._give_up(server.key, error, is_unfit=False)
            return None
        if server.calls >= self._most_calls and server.key not in self._next:
            try:
                self._next[server.key] = ForkServer(server.key)
            except OSError as error:
                self._give_up(server.key, error, is_unfit=False)
        return process

    def reap(self) -> None:
        """Those that have been replaced, or have ended."""
        for key in list(self._next):
            try:
                self._replace(key)
            except OSError as error:
                self._give_up(key, error, is_unfit=True)
        self._ended = [server for server in self._ended if server.process.poll() is None]

    def close(self) -> None:
        for key in list(self._servers):
            self._end(key)
        for server in self._ended:
            server.process.wait()

    def _consider(self, key: Key) -> None:
        """A module that is called for the second time gets one."""
        if key not in self._is_unfit:
            if len(self._is_unfit) >= MODULES_COUNTED:
                self._is_unfit.clear()
            self._is_unfit[key] = False
        elif not self._is_unfit[key]:
            if len(self._servers) >= MODULES_KEPT:
                self._end(next(iter(self._servers)))
            self._servers[key] = ForkServer(key)

    def _replace(self, key: Key) -> None:
        """By the next one, once that is ready. Raises OSError when it never will be."""
        if key in self._next and self._next[key].is_ready():
            following = self._next.pop(key)
            self._end(key)
            self._servers[key] = following

    def _give_up(self, key: Key, error: OSError, *, is_unfit: bool) -> None:
        log.info("A call begins in a new interpreter", module=key[0], why=str(error))
        self._is_unfit[key] = is_unfit
        self._end(key)

    def _end(self, key: Key) -> None:
        for servers in (self._servers, self._next):
            if server := servers.pop(key, None):
                server.close()
                self._ended.append(server)
