"""Report the proved end of a server, its kept reports first."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from controlplane.agent.api import leftovers
from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import Refused, Unreachable
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.fence import read_uptime
from controlplane.agent.processes.server_file import remove_server
from controlplane.agent.proofs.ending import Proof

log = structlog.get_logger()
PAUSE_CAP = 1.0  # seconds between two tries


def send_kept_reports(state: Path, server: RegisteredServer, patience: float) -> bool:
    """Send the reports that a server kept on disk. Return False if they are not answered within `patience` seconds.

    `state` is the folder that holds the reports of all agents. Report the end of the server only after this,
    because the control plane refuses reports of a server that has ended.
    """
    until = time.monotonic() + patience
    folders = [folder for folder in sorted(state.glob("*")) if folder.is_dir() and folder.name != "servers"]
    kept = [one for folder in folders for one in leftovers.load_leftovers(folder, server.client, server)]
    for leftover in kept:
        leftover.send_reports(max(0.0, until - time.monotonic()))
        leftover.close()
    return all(leftover.is_done for leftover in kept)


def report_end(server: RegisteredServer, proof: Proof, path: Path, may_go_on: Callable[[float], bool]) -> str | None:
    """Report the end until it is answered, then remove the server's file. Return "reported" or "refused".

    Return None if no answer came. `may_go_on` waits for so many seconds and returns False if no other try is wanted.
    """
    failures, result = 0, "reported"
    while True:
        try:
            body = {"uptime_seconds": read_uptime()} if proof.by_boot else {}
            answer = server.post("ended", body)
            log.warning(
                "Reported the end of a server: its jobs run elsewhere", server=server.id, state=answer.get("state"),
                attempts=answer.get("attempts"),
            )  # fmt: skip
            break
        except Refused as refused:
            log.warning("The end of a server is not accepted", server=server.id, why=str(refused))
            result = "refused"
            break
        except Unreachable as error:
            failures += 1
            if not may_go_on(full_jitter(failures, PAUSE_CAP, 0.1)):
                log.warning("The end of a server is not reported: no answer", server=server.id, why=str(error))
                return None
    remove_server(path)
    return result
