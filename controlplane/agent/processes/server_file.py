"""The file of a server, whose lock and markers prove that nothing of the server runs any more.

`STATE/servers/ID.json` is locked (flock) by the agent and by each of its reapers, and never by the code of a job. The
kernel frees the lock when the last of them has ended. `STATE/servers/ID.ATTEMPT` marks an attempt whose code may run:
the agent writes it before the code starts, and its reaper removes it when nothing of the code is left. A free lock
without markers is the proof.

A Celery worker has one marker for all its code. Its main process and its pool hold the lock, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.fence import read_uptime
from controlplane.agent.processes import host
from controlplane.agent.processes.folder import make_private

log = structlog.get_logger()
SUFFIX = ".json"
DRAFT_LOCKED_WITHIN = 60.0  # seconds
ALL_CODE = "code"
"""Name of the marker of a server whose code is not marked by attempt."""


@dataclass(frozen=True)
class ServerRecord:
    """The content of a server's file. It holds no token."""

    server: str
    instance: str
    url: str
    token_check: str
    boot: str
    machine: str
    namespace: int
    ends_namespace: bool
    """The kernel ends all processes of the namespace with the agent."""
    inode: int
    """Inode of the file itself: a copy has another."""

    @classmethod
    def read(cls, descriptor: int) -> ServerRecord:
        """Return the content of an open file. Raise ValueError if it is not that of a server."""
        text = os.pread(descriptor, 64 * 1024, 0)
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from None


def check_token(instance: str, token: str) -> str:
    """Return a digest that shows whether a successor has the token with which an instance registered."""
    return hmac.new(instance.encode(), token.encode(), hashlib.sha256).hexdigest()[:16]


def servers_folder(state: Path) -> Path:
    """Return the folder of server files. `state` is the state folder of one agent: all agents beside it share it."""
    return state.parent / "servers"


class ServerFile:
    """The locked file of this process's server. `lock` is the descriptor that reapers inherit."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self.lock = path, lock
        self._is_void = False

    @classmethod
    def create(cls, folder: Path, server: str, instance: str, url: str, token: str) -> ServerFile:
        """Write and lock the file before it gets its name. Raise OSError if that is not possible."""
        lock = lock_draft(folder, server)
        try:
            return cls.publish(folder, lock, server, instance, url, token, ends_namespace=host.ends_namespace())
        except OSError:
            os.close(lock)
            raise

    @classmethod
    def publish(
        cls, folder: Path, lock: int, server: str, instance: str, url: str, token: str, *, ends_namespace: bool,
        marker: dict[str, Any] | None = None,
    ) -> ServerFile:  # fmt: skip
        """Write the locked file and give it the name of its server. Raise OSError, and remove it, if that fails.

        The file may have the name of an earlier server. `marker` marks all code of a server that marks no attempts:
        `mark` is in the environment of its processes, `began` is the uptime at its start.
        """
        here = host.this_host()
        record = ServerRecord(
            server, instance, url, check_token(instance, token), here.boot, here.machine, here.namespace,
            ends_namespace, os.fstat(lock).st_ino,
        )  # fmt: skip
        path = folder / f"{server}{SUFFIX}"
        before = name_of(lock)
        try:
            if marker:
                write_marker(marker_path(path, ALL_CODE), marker)
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(asdict(record)).encode(), 0)
            os.fsync(lock)
            before.rename(path)
            sync_folder(folder)
        except OSError:
            for name in (before, path):  # without a lock in the reapers the file would prove too much
                with suppress(OSError):
                    name.unlink(missing_ok=True)
            raise
        return cls(path, lock)

    def write_marker(self, attempt: str, cleanup: list[str] | None) -> str | None:
        """Mark an attempt whose code is about to start, and return the path for its reaper.

        `cleanup` is the command that removes its container or pod. Return None if the marker cannot be written: then
        the file goes, and with it the proof, because a death could be reported while the code runs.
        """
        if not self._is_void:
            marker = marker_path(self.path, attempt)
            try:
                write_marker(marker, {"began": read_uptime(), "cleanup": cleanup})
                return str(marker)
            except OSError as error:
                self._is_void = True
                log.warning(
                    "A death of this agent cannot be proved any more: its jobs wait for the timeout",
                    folder=str(self.path.parent), why=str(error),
                )  # fmt: skip
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        return None

    def remove_marker(self, attempt: str) -> None:
        """Remove the marker of an attempt that has ended. Its reaper has done so already, unless it was killed."""
        with suppress(OSError):
            marker_path(self.path, attempt).unlink(missing_ok=True)

    def remove_markers(self) -> None:
        """Remove all markers, because no code of this server runs any more."""
        with suppress(OSError):
            for marker in markers_of(self.path):
                marker.unlink(missing_ok=True)

    def close(self, *, is_end_known: bool) -> None:
        """Free the lock. `is_end_known`: the control plane knows the end of the server, so its file goes."""
        if is_end_known:
            with suppress(OSError):
                remove_server(self.path)
        os.close(self.lock)


def lock_draft(folder: Path, name: str) -> int:
    """Return the descriptor of a new locked file, which has no server's name yet. Raise OSError."""
    make_private(folder)
    draft = folder / f".{name}.{os.getpid()}"
    lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        with suppress(OSError):
            draft.unlink()
        raise
    return lock


def clear_drafts(folder: Path) -> None:
    """Remove the files of processes that ended before their server was registered."""
    for draft in folder.glob(".*"):
        with suppress(OSError):
            descriptor = os.open(draft, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(descriptor).st_mtime > DRAFT_LOCKED_WITHIN:
                    draft.unlink()
            finally:
                os.close(descriptor)


def name_of(lock: int) -> Path:
    """Return the present name of an open file. Raise OSError."""
    return Path(os.readlink(f"/proc/self/fd/{lock}"))


def write_marker(marker: Path, content: dict[str, Any]) -> None:
    """Write a marker. Its `began` is the uptime before which no code of it started. Raise OSError."""
    with open(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(content, file)


def marker_path(path: Path, attempt: str) -> Path:
    return path.with_name(f"{path.name.removesuffix(SUFFIX)}.{attempt}")


def markers_of(path: Path) -> list[Path]:
    """Return the markers of a server's attempts."""
    server = path.name.removesuffix(SUFFIX)
    return [found for found in sorted(path.parent.glob(f"{server}.*")) if found.name != path.name]


def attempt_of(marker: Path) -> str:
    return marker.name.partition(".")[2]


def remove_server(path: Path) -> None:
    """Remove the file of a server and all its markers. Raise OSError."""
    for marker in markers_of(path):
        marker.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power cut. Raise OSError."""
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
