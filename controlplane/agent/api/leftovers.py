"""Reports that were not answered before an agent ended. The next start of that agent sends them.

There is one file for each server, readable by its user only. The file of an agent that ended holds the token of its
server, but no other secret of the agent. The journal of an agent that was killed (journal.py) holds none. A report that
is sent twice gets the same answer again. A file is removed when all its reports are answered.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.journal import SUFFIX, read_journal
from controlplane.agent.api.outbox import Outbox, Report
from controlplane.agent.api.registration import RegisteredServer, ServerConfig, register_once
from controlplane.agent.api.transport import ClaimResult, ReportResult, TransportThread
from controlplane.agent.processes.folder import make_private
from controlplane.agent.processes.server_file import check_token

log = structlog.get_logger()
POLL = 1.0


def state_folder(state: str | None, name: str | None) -> Path:
    """Return the folder for the agent with this name. Agents without a name share one per host."""
    chosen = Path(state) if state else _default_state_folder()
    return chosen / urllib.parse.quote(name or socket.gethostname(), safe="")


def _default_state_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if os.path.isabs(home):
        return Path(home, "controlplane-agent")
    return Path(tempfile.gettempdir(), f"controlplane-agent-{os.getuid()}", "state")  # the user has no home directory


def save_reports(folder: Path, server: RegisteredServer, reports: list[Report]) -> None:
    """Write the unanswered reports of `server` to its file, or remove the file if there are none. Raise OSError."""
    target = folder / f"{server.id}.json"
    if not reports:
        target.unlink(missing_ok=True)
        return
    make_private(folder)
    left = {
        "url": server.client.base,
        "server": server.id,
        "token": server.present_token,
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


def kept_files(folder: Path, id: str = "*") -> list[Path]:
    """Return the files with reports of servers: those of agents that ended, and journals of agents that were killed."""
    return sorted([*folder.glob(f"{id}.json"), *folder.glob(f"{id}{SUFFIX}")])


def load_leftovers(
    folder: Path, client: AgentClient, server: RegisteredServer | None = None, register: Register | None = None
) -> list[Leftover]:
    """Return the reports that earlier servers left for this control plane. Files that cannot be read stay.

    `server` limits them to the reports of this server. A journal holds no token: `register` registers its instance
    again.
    """
    found = []
    for path in kept_files(folder, server.id if server else "*") if folder.is_dir() else []:
        try:
            left = read_journal(path) if path.suffix == SUFFIX else json.loads(path.read_text())
            if left is None:
                continue  # its agent lives
            if not left["reports"]:
                path.unlink()
                continue
            if left["url"] != client.base:
                log.warning("Unsent reports are for another control plane", file=str(path), url=left["url"])
                continue
            owner = server or describe_server(left, client, register)
            if owner is None:
                log.warning("Unsent reports need the worker token with which their server registered", file=str(path))
                continue
            found.append(Leftover(path, owner, left["reports"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("Unsent reports cannot be read", file=str(path), why=repr(error))
    return found


def describe_server(left: dict[str, Any], client: AgentClient, register: Register | None) -> RegisteredServer | None:
    """Return the server of kept reports, or None if this agent cannot get its token. Raise KeyError or TypeError."""
    id, config = left["server"], ServerConfig(**left["config"])
    if "token" in left:
        return RegisteredServer(client, id, left["token"], config, None, 0.0)
    if register is None or left["token_check"] != check_token(left["instance"], register.read_token()):
        return None
    return RegisteredServer(client, id, "", config, None, 0.0, again=partial(register, left["instance"]))


@dataclass(frozen=True)
class Register:
    """Registration of an instance of an earlier agent. The control plane returns its server with a token."""

    client: AgentClient
    read_token: Callable[[], str]
    describe: Callable[[], dict[str, Any]]

    def __call__(self, instance: str) -> RegisteredServer:
        """Raise Refused or Unreachable."""
        return register_once(self.client, self.read_token(), self.describe(), instance)


class Leftover:
    """Send the reports of one file, as their server, until each is answered or all are refused."""

    def __init__(self, path: Path, server: RegisteredServer, reports: list[Report]) -> None:
        self.is_done = False
        self._path, self._server, self._outbox = path, server, Outbox()
        self._outbox.add_reports(*reports)
        self._transport = TransportThread(server, self._outbox, POLL, self._handle_result, self._remove_file)

    def send_reports(self, head_start: float) -> None:
        """Send the reports in a thread, and wait for it at most `head_start` seconds."""
        log.info("Sending reports of an earlier start", server=self._server.id, reports=len(self._outbox))
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
        """Remove the file: all reports are answered, or all are refused."""
        if self._outbox:
            log.warning("Reports of an earlier start dropped", server=self._server.id, reports=len(self._outbox))
        self.is_done = True
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._transport.close()


class KeptReports:
    """Reports of earlier starts that an agent sends, and the reports that it keeps itself when it ends."""

    def __init__(self, folder: Path, client: AgentClient, register: Register) -> None:
        self._folder = folder
        self._leftovers = load_leftovers(folder, client, register=register)

    def send(self, head_start: float) -> None:
        """Send the reports of earlier starts. Wait for each start at most `head_start` seconds."""
        for leftover in self._leftovers:
            leftover.send_reports(head_start)

    def save(self, server: RegisteredServer, reports: list[Report], *, is_last: bool) -> bool:
        """Save unanswered reports for the next start. Return False if that failed. `is_last`: this agent ends."""
        try:
            save_reports(self._folder, server, reports)
        except OSError as error:
            log.error("Reports not kept: their jobs run again", reports=len(reports), why=str(error))
            return False
        if reports and is_last:
            log.warning("Reports kept for the next start", reports=len(reports), folder=str(self._folder))
        return True

    def close(self) -> None:
        for leftover in self._leftovers:
            leftover.close()
