"""Reports that nobody answered before an agent ended: a file for each server, sent when that agent is started again.

A file holds the token of its server, without which nobody could send them, and no other secret of the agent's; only its
user can read it. What is sent twice is answered as said before, so a file goes when all of it was answered.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import urllib.parse
from dataclasses import asdict
from pathlib import Path

import structlog

from controlplane.agent.client import Client
from controlplane.agent.folder import make_private
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.registration import RegisteredServer, ServerConfig
from controlplane.agent.transport import ClaimResult, ReportResult, TransportThread

log = structlog.get_logger()
POLL = 1.0


def state_folder(state: str | None, name: str | None) -> Path:
    """Of the agent of that name, or of those without one on this host."""
    chosen = Path(state) if state else _default_state_folder()
    return chosen / urllib.parse.quote(name or socket.gethostname(), safe="")


def _default_state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if os.path.isabs(home):
        return Path(home, "controlplane-agent")
    return Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}", "state")  # a user without a home


def save_reports(folder: Path, server: RegisteredServer, reports: list[Report]) -> None:
    """The only reports of `server` that are left; with none its file goes. Raises OSError."""
    target = folder / f"{server.id}.json"
    if not reports:
        target.unlink(missing_ok=True)
        return
    make_private(folder)
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


def load_leftovers(folder: Path, client: Client) -> list[Leftover]:
    """What servers before us left here for this control plane; what cannot be read is left alone."""
    leftovers = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            left = json.loads(path.read_text())
            if left["url"] != client.base:
                log.warning("Reports are left for another control plane", file=str(path), url=left["url"])
                continue
            server = RegisteredServer(client, left["server"], left["token"], ServerConfig(**left["config"]), None, 0.0)
            leftovers.append(Leftover(path, server, left["reports"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("Reports that were left cannot be read", file=str(path), why=repr(error))
    return leftovers


class Leftover:
    """Sends the reports of a file, as the server that they are of, until each is answered or all are refused."""

    def __init__(self, path: Path, server: RegisteredServer, reports: list[Report]) -> None:
        self._path, self._server, self._outbox = path, server, Outbox()
        self._outbox.add_reports(*reports)
        self._transport = TransportThread(server, self._outbox, POLL, self._handle_result, self._remove_file)

    def send_reports(self, head_start: float) -> None:
        """In a thread; waits for `head_start` seconds at most."""
        log.info("Sending what was left", server=self._server.id, reports=len(self._outbox))
        self._transport.start()
        self._transport.join(head_start)

    def close(self) -> None:
        self._transport.close()

    def _handle_result(self, result: ClaimResult | ReportResult) -> None:
        if isinstance(result, ReportResult) and not result.result.get("accepted"):
            log.warning(
                "Report refused", attempt=result.report["attempt"], report=result.report["event"],
                code=result.result.get("code"), state=result.result.get("state"),
            )  # fmt: skip
        if not self._outbox:
            self._remove_file()

    def _remove_file(self) -> None:
        """All is answered, or all is refused."""
        if self._outbox:
            log.warning("What was left is dropped", server=self._server.id, reports=len(self._outbox))
        self._path.unlink(missing_ok=True)
        self._transport.close()
