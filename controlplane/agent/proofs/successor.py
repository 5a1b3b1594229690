"""Report the servers of this machine that died, when an agent starts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from controlplane.agent.api.registration import register_once
from controlplane.agent.processes import host
from controlplane.agent.processes.server_file import SUFFIX, check_token, clear_drafts, remove_server, servers_folder
from controlplane.agent.proofs.ending import NotProved, Proof, locked, prove_end
from controlplane.agent.proofs.reporting import report_end, send_kept_reports

log = structlog.get_logger()
LEFTOVER_PATIENCE = 5.0  # seconds for the kept reports of a server; afterwards other servers have their turn
POLL = 0.2  # seconds between two looks at locks that are held, in the first seconds
LATER_POLL = 1.0  # seconds between two later looks: most of these servers simply live
LATER = 10.0  # seconds
METRIC = "controlplane_agent_proofs_total"
FORGOTTEN = 7 * 24 * 3600.0  # seconds after which the file of a server that cannot be reported is removed


class Successor:
    """Prove and report the end of each dead server whose file is in the state folder.

    A server whose lock is still held is watched in a thread, for as long as its jobs could wait for a timeout.
    """

    def __init__(
        self,
        state: Path,
        client: AgentClient,
        read_token: Callable[[], str],
        describe: Callable[[], dict[str, Any]],
        *,
        spare: Collection[int] = (),
        proved: Callable[[str], None] = lambda instance: None,
    ) -> None:
        """`describe` returns the body of a registration: by registering again, a successor gets the token of a server.

        `state` is the state folder of one agent. `spare` are processes that a proof must not kill. `proved` is called
        with the instance of each dead server.
        """
        self._client, self._read_token, self._describe = client, read_token, describe
        self._spare, self._proved = spare, proved
        self._folder = servers_folder(state)
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._unreported: list[Path] = []
        self._results: Counter[str] = Counter()

    def metrics(self) -> dict[str, int]:
        """Return the number of dead servers by result, as metrics for a heartbeat."""
        return {f'{METRIC}{{result="{result}"}}': count for result, count in sorted(self._results.copy().items())}

    def report_dead_servers(self, patience: float) -> None:
        """Report what can be proved now; wait for `patience` seconds at most for answers of the control plane."""
        until = time.monotonic() + patience
        for path in self._files():
            # With the first call that is not answered in time, the others wait for the thread.
            if time.monotonic() >= until or not self._is_done(path, lambda pause: self._wait(pause, until)):
                self._unreported.append(path)

    def watch(self, seconds: float) -> None:
        """Look again at what could not be reported yet, in a thread, for so many seconds."""
        if self._unreported:
            self._thread = threading.Thread(target=self._look_again, args=(seconds,), name="successor", daemon=True)
            self._thread.start()

    def begin(self, seconds: float) -> None:
        """Report and watch all servers in a thread, for so many seconds."""
        self._unreported = self._files()
        self.watch(seconds)

    def close(self) -> None:
        self._is_closed.set()

    def _files(self) -> list[Path]:
        if host.read_problem():
            return []
        clear_drafts(self._folder)
        return sorted(self._folder.glob(f"*{SUFFIX}"))

    def _look_again(self, seconds: float) -> None:
        began = time.monotonic()
        until = began + seconds
        while self._unreported:
            self._unreported = [
                path for path in self._unreported if not self._is_done(path, lambda pause: self._wait(pause, until))
            ]
            if not self._wait(POLL if time.monotonic() < began + LATER else LATER_POLL, until):
                return

    def _wait(self, pause: float, until: float) -> bool:
        return time.monotonic() + pause < until and not self._is_closed.wait(pause)

    def _is_done(self, path: Path, may_go_on: Callable[[float], bool]) -> bool:
        """Return False if the server is to be looked at again."""
        try:
            with locked(path) as descriptor:
                proof = prove_end(path, descriptor, self._spare)
                if not proof.by_boot:  # the control plane decides on that one
                    self._proved(proof.record.instance)
                return self._report(path, proof, may_go_on)
        except FileNotFoundError:
            return True
        except NotProved as problem:
            if problem.is_final:
                log.info("The death of a server cannot be proved", file=str(path), why=str(problem))
                self._results["not_proved"] += 1
                forget_old(path)
            return problem.is_final
        except Exception as error:  # nothing that an earlier agent left may keep this one from its work
            log.warning("The file of a server cannot be used", file=str(path), why=repr(error))
            self._results["failed"] += 1
            return True

    def _report(self, path: Path, proof: Proof, may_go_on: Callable[[float], bool]) -> bool:
        record, token = proof.record, self._read_token()
        if record.url != self._client.base or record.token_check != check_token(record.instance, token):
            log.info("A dead server is not ours to report: it had another token or control plane", file=str(path))
            self._results["foreign"] += 1
            forget_old(path)
            return True
        try:
            server = register_once(self._client, token, self._describe(), record.instance)
        except Unreachable:
            return False
        except Refused as refused:
            if refused.code == "server_not_running":
                self._results["known"] += 1
                remove_server(path)
            else:
                log.warning("The death of a server is not accepted", file=str(path), why=str(refused))
                self._results["refused"] += 1
                forget_old(path)
            return True
        if server.id != record.server:
            server.end_unused()  # the control plane has deleted the old one
            self._results["known"] += 1
            remove_server(path)
            return True
        if not send_kept_reports(self._folder.parent, server, LEFTOVER_PATIENCE):
            return False
        result = report_end(server, proof, path, may_go_on)
        if result:
            self._results[result] += 1
        return result is not None


def forget_old(path: Path) -> None:
    """Remove the file of a server if it is old. No agent can report that server."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > FORGOTTEN:
            remove_server(path)
