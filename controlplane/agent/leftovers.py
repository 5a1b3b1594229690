"""Reports that nobody answered before an agent ended: a file for each server, sent when that agent is started again.

A file holds the token of its server, without which nobody could send them, and no other secret of the agent's; only its
user can read it. What is sent twice is answered as said before, so a file goes when all of it was answered.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
import urllib.parse
from dataclasses import asdict
from pathlib import Path

import structlog

from controlplane.agent.client import Client
from controlplane.agent.courier import Claimed, Courier, Reported
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.registration import Config, Server

log = structlog.get_logger()
POLL = 1.0


def folder_of(state: str | None, name: str | None) -> Path:
    """Of the agent of that name, or of those without one on this host."""
    chosen = Path(state) if state else _users_own()
    return chosen / urllib.parse.quote(name or socket.gethostname(), safe="")


def _users_own() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if os.path.isabs(home):
        return Path(home, "controlplane-agent")
    return Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}", "state")  # a user without a home


def keep(folder: Path, server: Server, reports: list[Report]) -> None:
    """The only reports of `server` that are left; with none its file goes. Raises OSError."""
    target = folder / f"{server.id}.json"
    if not reports:
        target.unlink(missing_ok=True)
        return
    _make_private(folder)
    left = {
        "url": server.client.base,
        "server": server.id,
        "token": server.token,
        "config": asdict(server.config),
        "reports": reports,
    }
    draft = target.with_suffix(f".{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(left, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def _make_private(folder: Path) -> None:
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of ours")
    folder.chmod(0o700)


def found(folder: Path, client: Client) -> list[Leftover]:
    """What servers before us left here for this control plane; what cannot be read is left alone."""
    leftovers = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            left = json.loads(path.read_text())
            if left["url"] != client.base:
                log.warning("Reports are left for another control plane", file=str(path), url=left["url"])
                continue
            server = Server(client, left["server"], left["token"], Config(**left["config"]), None, 0.0)
            leftovers.append(Leftover(path, server, left["reports"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("Reports that were left cannot be read", file=str(path), why=repr(error))
    return leftovers


class Leftover:
    """Sends the reports of a file, as the server that they are of, until each is answered or all are refused."""

    def __init__(self, path: Path, server: Server, reports: list[Report]) -> None:
        self._path, self._server, self._outbox = path, server, Outbox()
        self._outbox.put(*reports)
        self._courier = Courier(server, self._outbox, POLL, self._heard, self._done)

    def send(self, head_start: float) -> None:
        """In a thread; waits for `head_start` seconds at most."""
        log.info("Sending what was left", server=self._server.id, reports=len(self._outbox))
        self._courier.start()
        self._courier.join(head_start)

    def close(self) -> None:
        self._courier.close()

    def _heard(self, said: Claimed | Reported) -> None:
        if isinstance(said, Reported) and not said.result.get("accepted"):
            log.warning(
                "Report refused", attempt=said.report["attempt"], report=said.report["event"],
                code=said.result.get("code"), state=said.result.get("state"),
            )  # fmt: skip
        if not self._outbox:
            self._done()

    def _done(self) -> None:
        """All is answered, or all is refused."""
        if self._outbox:
            log.warning("What was left is dropped", server=self._server.id, reports=len(self._outbox))
        self._path.unlink(missing_ok=True)
        self._courier.close()
