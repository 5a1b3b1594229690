"""The journal of a running agent: what it has begun, and the ends that the control plane has not answered yet.

It is a file of lines of JSON, appended before the next attempt begins, so an agent that is killed loses no finished
attempt. A later start, or the sentinel, sends its reports: the kept ends, and RELEASED for attempts that had not begun.
An attempt that had begun and not ended is not in these reports: it is lost with its agent.

The agent holds a lock on the file as long as it lives, also after an error of the disk. The file is not synced to the
disk, because the kernel keeps what a killed process has written. After a power cut the last lines may be missing. So
only a whole journal of the same boot shows that an attempt has not begun. The file holds no token.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.outbox import Report
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.processes import host
from controlplane.agent.processes.folder import make_private
from controlplane.agent.processes.server_file import check_token

log = structlog.get_logger()
SUFFIX = ".journal"
REWRITTEN = 4 * 1024 * 1024  # bytes after which the file is written again without answered attempts
NOT_BEGUN = "its agent ended before its code began"
WAITING, BEGUN = "waiting", "begun"

Entry = list[Report] | str | None


class Journal:
    """Main thread only. It does nothing until `open`, and after an error of the disk. It raises nothing."""

    def __init__(self) -> None:
        self._file: int | None = None  # open, and so locked, until `close`
        self._is_kept = False
        self._size = self._limit = 0
        self._entries: dict[str, Entry] = {}
        self._stuck: frozenset[str] = frozenset()  # attempts that a file shows as waiting, which cannot be changed

    def open(self, folder: Path, server: RegisteredServer) -> None:
        """Start the journal of a server in the state folder of its agent."""
        self._path, self._server = folder / f"{server.id}{SUFFIX}", server
        self._is_kept = True
        self._try(lambda: make_private(folder))
        self._try(self._rewrite)

    def note_waiting(self, attempt: str) -> None:
        """Note that an attempt is about to be reported as STARTED. Its code has not begun."""
        self._note(attempt, WAITING)

    def note_begun(self, attempt: str) -> bool:
        """Note that the code of an attempt is about to begin.

        Return False if it must not begin: the file shows it as waiting, and the disk accepts no change.
        """
        self._note(attempt, BEGUN)
        return attempt not in self._stuck

    def note_ended(self, attempt: str, reports: list[Report]) -> None:
        """Note the last reports of an attempt."""
        self._note(attempt, reports)

    def forget(self, attempt: str) -> None:
        """Note that no report of an attempt is needed any more."""
        if attempt in self._entries:
            self._note(attempt, None)

    def close(self, *, is_needed: bool) -> None:
        """Close the journal. Remove it if it is not needed, because the reports are kept elsewhere."""
        if self._file is None:
            return
        if not is_needed:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        file, self._file, self._is_kept = self._file, None, False
        with suppress(OSError):
            os.close(file)

    def _note(self, attempt: str, entry: Entry) -> None:
        self._try(lambda: self._append({attempt: entry}))
        if not self._is_kept:
            return
        if entry is None:
            self._entries.pop(attempt, None)
        else:
            self._entries[attempt] = entry
        if self._size > self._limit:
            self._limit = 2 * self._size  # if this fails, the present file is good for longer
            with suppress(OSError):
                self._rewrite()

    def _append(self, content: dict[str, Any]) -> None:
        if self._file is not None:
            self._size += write_line(self._file, content)

    def _rewrite(self) -> None:
        """Write the present state to a new file, and put it in the place of the old one. Raise OSError."""
        draft = self._path.with_suffix(f".{os.getpid()}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = write_line(file, {"journal": self._describe(file)})
            size += write_line(file, self._entries)
            draft.rename(self._path)
        except OSError:
            os.close(file)
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        before, self._file = self._file, file
        self._identity = os.fstat(file)
        self._size, self._limit = size, 2 * size + REWRITTEN
        if before is not None:
            os.close(before)  # only now: until here its lock kept readers away

    def _describe(self, file: int) -> dict[str, Any]:
        """Return what a reader must know: whose reports these are, and where the file is the original."""
        server = self._server
        return {
            "url": server.client.base,
            "server": server.id,
            "instance": server.instance_id,
            "token_check": check_token(server.instance_id, server.registration_token),
            "config": asdict(server.config),
            "boot": read_boot(),
            "inode": os.fstat(file).st_ino,
        }

    def _try(self, write: Callable[[], None]) -> None:
        """Keep no journal any more if `write` fails."""
        if not self._is_kept:
            return
        try:
            write()
        except Exception as error:  # whatever it is, the ends of attempts must still be reported
            self._is_kept = False
            log.warning("No journal: ends that are not answered when this agent is killed are lost", why=str(error))
            if self._file is not None and not self._make_void(self._file):
                self._stuck = frozenset(attempt for attempt, entry in self._entries.items() if entry == WAITING)
            self._entries.clear()

    def _make_void(self, file: int) -> bool:
        """Return True if no reader finds an old state of the attempts any more. The lock stays in any case."""
        is_empty = is_gone = False
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), self._identity):
                os.ftruncate(file, 0)
                is_empty = True
        with suppress(OSError):
            if os.path.samestat(self._path.lstat(), self._identity):
                self._path.unlink()
                is_gone = True
        return is_empty or is_gone


def write_line(file: int, content: dict[str, Any]) -> int:
    """Write a line of JSON as a whole and return its size. Raise OSError."""
    line = json.dumps(content).encode() + b"\n"
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(file, rest) :]
    return len(line)


def read_boot() -> str:
    """Return the id of this boot, or nothing where the system has none."""
    try:
        return host.this_host().boot
    except OSError:
        return ""


def read_journal(path: Path) -> dict[str, Any] | None:
    """Return the content of a journal as a file of kept reports, or None while its agent lives. Raise OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(file, "rb") as opened:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        identity = os.fstat(file)
        if not os.path.samestat(identity, path.lstat()):
            return None  # its agent has written another file
        *lines, rest = opened.read().split(b"\n")
    head: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    is_whole = not rest
    for line in lines:
        try:
            content = dict(json.loads(line))
            head |= content.pop("journal", {})
            entries |= content
        except (ValueError, TypeError):
            is_whole = False  # perhaps it showed that an attempt has begun
    boot = read_boot()
    is_original = bool(boot) and head.get("boot") == boot and head.get("inode") == identity.st_ino
    reports = [report for entry in entries.values() if isinstance(entry, list) for report in entry]
    if is_whole and is_original:
        reports += [
            {"attempt": attempt, "event": "RELEASED", "reason": NOT_BEGUN, "begun": False}
            for attempt, entry in entries.items()
            if entry == WAITING
        ]
    return {**head, "reports": reports}
