"""The journal of a running agent: what it has begun, and the ends that the control plane has not answered yet.

It is a file of lines of JSON, appended before the next attempt begins, so an agent that is killed loses no finished
attempt. A later start, or the sentinel, sends its reports: the kept ends, and RELEASED for attempts that had not begun.
An attempt that had begun and not ended is not in these reports: it is lost with its agent.

The agent holds a lock on the file as long as it lives. It is not synced to the disk, because the kernel keeps what a
killed process has written.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.outbox import Report
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.processes.folder import make_private

log = structlog.get_logger()
SUFFIX = ".journal"
REWRITTEN = 4 * 1024 * 1024  # bytes after which the file is written again without answered attempts
NOT_BEGUN = "its agent ended before its code began"

Entry = list[Report] | str | None


class Journal:
    """Main thread only. It does nothing until `open`, and after an error of the disk."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._size = self._limit = 0
        self._entries: dict[str, Entry] = {}

    def open(self, folder: Path, server: RegisteredServer) -> None:
        """Start the journal of a server in the state folder of its agent."""
        self._path, self._server = folder / f"{server.id}{SUFFIX}", server
        if self._guarded(lambda: make_private(folder)):
            self._rewrite()

    def note_waiting(self, attempt: str) -> None:
        """Note that an attempt is about to be reported as STARTED. Its code has not begun."""
        self._note({attempt: "waiting"})

    def note_begun(self, attempt: str) -> None:
        """Note that the code of an attempt is about to begin."""
        self._note({attempt: "begun"})

    def note_ended(self, attempt: str, reports: list[Report]) -> None:
        """Note the last reports of an attempt."""
        self._note({attempt: reports})

    def forget(self, attempt: str) -> None:
        """Note that no report of an attempt is needed any more."""
        if attempt in self._entries:
            self._note({attempt: None})

    def close(self, *, is_needed: bool) -> None:
        """Close the journal. Remove it if it is not needed, because the reports are kept elsewhere."""
        if self._file is not None:
            if not is_needed:
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _note(self, entries: dict[str, Entry]) -> None:
        if self._file is None:
            return
        for attempt, entry in entries.items():
            if entry is None:
                self._entries.pop(attempt, None)
            else:
                self._entries[attempt] = entry
        self._append(entries)
        if self._size > self._limit:
            self._rewrite()

    def _append(self, content: dict[str, Any]) -> None:
        file, line = self._file, json.dumps(content).encode() + b"\n"
        if file is not None:
            self._guarded(lambda: os.write(file, line))
            self._size += len(line)

    def _rewrite(self) -> None:
        """Write the present state to a new file, and put it in the place of the old one."""
        before, draft = self._file, self._path.with_suffix(f".{os.getpid()}")
        server = self._server
        head = {"url": server.client.base, "server": server.id, "token": server.present_token}

        def write() -> None:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            self._file = file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = 0
            self._append({"journal": {**head, "config": asdict(server.config)}})
            self._append(self._entries)
            draft.rename(self._path)

        self._guarded(write)
        self._limit = 2 * self._size + REWRITTEN
        if before is not None:
            os.close(before)

    def _guarded(self, write: Any) -> bool:
        """Return False, and keep no journal any more, if `write` fails."""
        try:
            write()
            return True
        except OSError as error:
            log.warning("No journal: ends that are not answered when this agent is killed are lost", why=str(error))
            if self._file is not None:
                os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            return False


def read_journal(path: Path) -> dict[str, Any] | None:
    """Return the content of a journal as a file of kept reports, or None while its agent lives.

    Raise OSError or ValueError if it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(file, "rb") as opened:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        lines = opened.read().split(b"\n")[:-1]  # the last line is incomplete, or empty
    entries: dict[str, Entry] = {}
    left: dict[str, Any] = {}
    for line in lines:
        content = json.loads(line)
        left |= content.pop("journal", {})
        entries |= content
    return {**left, "reports": list(_reports_of(entries))}


def _reports_of(entries: dict[str, Entry]) -> Iterable[Report]:
    for attempt, entry in entries.items():
        if entry == "waiting":
            yield {"attempt": attempt, "event": "RELEASED", "reason": NOT_BEGUN}
        elif isinstance(entry, list):
            yield from entry
