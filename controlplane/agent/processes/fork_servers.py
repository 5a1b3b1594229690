"""The fork servers (fork_server.py): one for the modules of pool processes, and one for each module called again.

Main thread only. This is only an optimisation: if anything fails here, the call starts in a new interpreter.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import structlog

from controlplane.agent.processes import attempt_mark
from controlplane.agent.processes.fork_server import READY

log = structlog.get_logger()
MODULES_KEPT = 8  # fork servers at once; a new one replaces the one that was idle longest
MODULES_COUNTED = 1000
IMPORT_PATIENCE = 10.0  # seconds in which a new agent claims nothing, so that its pool processes can be forked
PATIENCE = 2.0  # seconds to wait for a fork, on the main thread


class ForkedProcess:
    """A forked process that became our child. It has the methods of subprocess.Popen that are used here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


Key = tuple[str, frozenset[tuple[str, str]]]
"""Modules, with commas between them, and the environment of their import."""


def for_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a call without the variables of its job."""
    return {name: value for name, value in environment.items() if not name.startswith("JOB_")}


class ForkServer:
    """A fork server. Raise OSError if it cannot start."""

    def __init__(self, key: Key) -> None:
        self.key, self.calls, self.is_fit = key, 0, False
        self.started_at = time.monotonic()
        modules, environment = key
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controlplane.agent.processes.fork_server", modules, str(theirs.fileno())],
                env={**dict(environment), **attempt_mark.EMPTY},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Return False while it still imports its module. Raise OSError if the import failed."""
        if not self.is_fit:
            self._channel.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                self.is_fit = self._receive() == READY
        return self.is_fit

    def fork(self, descriptors: Sequence[int]) -> ForkedProcess:
        """Return a new process that has these file descriptors. Raise OSError if that fails."""
        self._channel.settimeout(PATIENCE)
        socket.send_fds(self._channel, [b"fork"], descriptors)
        pid = int(self._receive())
        self.calls += 1
        return ForkedProcess(pid)

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self.process.kill()

    def _receive(self) -> bytes:
        answer = self._channel.recv(1000)
        if not answer or answer.startswith(b"!"):
            raise OSError(answer[1:].decode(errors="replace") or "it has ended")
        return answer


class ForkServers:
    """The fork servers of a worker.

    `most_calls` is the limit of calls for one process. Then another process replaces it, once that has imported the
    module.
    """

    def __init__(self, most_calls: int) -> None:
        self._most_calls = most_calls
        self._servers: OrderedDict[Key, ForkServer] = OrderedDict()
        self._next: dict[Key, ForkServer] = {}  # not ready yet; the current one works until then
        self._ended: list[ForkServer] = []
        self._is_unfit: dict[Key, bool] = {}  # by called module: True if it failed once, so it gets no fork server

    def pids(self) -> set[int]:
        return {server.process.pid for server in (*self._servers.values(), *self._next.values(), *self._ended)}

    @property
    def are_importing(self) -> bool:
        """Return True while a fork server imports its modules, for at most IMPORT_PATIENCE seconds."""
        for server in list(self._servers.values()):
            try:
                if not server.is_ready() and time.monotonic() < server.started_at + IMPORT_PATIENCE:
                    return True
            except OSError as error:
                self._give_up(server.key, error, is_unfit=True)
        return False

    def choose(self, modules: str, environment: Mapping[str, str], *, is_needed: bool = False) -> ForkServer | None:
        """Return a fork server that is ready for these modules, or None.

        If there is none, start it at the second call. `is_needed`: start it now.
        """
        key = modules, frozenset(environment.items())
        try:
            self._replace(key)
            server = self._servers.get(key)
            if server is None:
                self._consider(key, is_needed)
                return None
            self._servers.move_to_end(key)
            return server if server.is_ready() else None
        except OSError as error:
            self._give_up(key, error, is_unfit=True)
            return None

    def fork(self, server: ForkServer, descriptors: Sequence[int]) -> ForkedProcess | None:
        """Return a forked process. Return None if the fork failed; then that fork server is closed.

        A failed fork may still have started. Then the same descriptors must not go to another process, and the agent
        must close its ends of them.
        """
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
        """Collect replaced and ended fork servers."""
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

    def _consider(self, key: Key, is_needed: bool) -> None:
        """Start a fork server if it is needed, or for a module that is called for the second time."""
        is_new = key not in self._is_unfit
        if is_new:
            if len(self._is_unfit) >= MODULES_COUNTED:
                self._is_unfit.clear()
            self._is_unfit[key] = False
        if (is_needed or not is_new) and not self._is_unfit[key]:
            if len(self._servers) >= MODULES_KEPT:
                self._end(next(iter(self._servers)))
            self._servers[key] = ForkServer(key)

    def _replace(self, key: Key) -> None:
        """Switch to the next fork server if it is ready. Raise OSError if its import failed."""
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
