"""The process beside an agent that reports its death: `python -m controlplane.agent.proofs.sentinel`.

Its standard input is a pipe from the agent, with a JSON object on each line. The first has the data for a report of
death, the next ones have new tokens, and the last one announces a normal end. A pipe that ends without the last one
means that the agent died.
It imports nothing but the standard library until then, and its token stays in its memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

POLL = 0.005  # seconds between two looks at the lock, in the first second after the death
LATER_POLL = 0.1  # seconds between two later looks: a reaper is stopped, or has much to end
CLOSE_TO_OTHERS = 4  # PR_SET_DUMPABLE: code of a job must not read the token in this process


class Sentinel:
    def __init__(self) -> None:
        self._was_told_to_end = False
        self._facts: dict[str, Any] = {}

    def run(self) -> None:
        """Watch the agent until it ends, then report its death."""
        signal.signal(signal.SIGTERM, self._record_sigterm)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for line in sys.stdin:
            self._facts |= json.loads(line)
        if self._facts and not self._facts.get("is_over"):
            self._report_death()

    def _record_sigterm(self, number: int, frame: object) -> None:
        self._was_told_to_end = True

    def _report_death(self) -> None:
        from controlplane.agent.proofs.ending import NotProved, locked, prove_end

        path = Path(self._facts["file"])
        began = time.monotonic()
        until = began + self._facts["patience"]
        while True:
            try:
                with locked(path) as descriptor:
                    self._report(path, prove_end(path, descriptor), until)
                    return
            except NotProved as problem:
                if problem.is_final or time.monotonic() >= until:
                    return
            except FileNotFoundError:
                return  # a successor was quicker
            time.sleep(POLL if time.monotonic() < began + 1 else LATER_POLL)

    def _report(self, path: Path, proof: Any, until: float) -> None:
        import structlog

        from controlplane.agent.api.client import AgentClient
        from controlplane.agent.api.registration import RegisteredServer, ServerConfig
        from controlplane.agent.proofs.reporting import report_end, send_kept_reports

        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        client = AgentClient(self._facts["url"])
        config = ServerConfig(**self._facts["config"])
        client.timeout = max(0.5, min(10.0, config.timeout / 4))
        server = RegisteredServer(client, self._facts["server"], self._facts["token"], config, None, 0.0)
        if not send_kept_reports(Path(self._facts["state"]), server, until - time.monotonic()):
            return

        def may_go_on(pause: float) -> bool:
            if self._was_told_to_end or time.monotonic() + pause >= until:
                return False
            time.sleep(pause)
            return True

        report_end(server, proof, path, may_go_on)


def close_to_others() -> None:
    """Keep code of the same user out of the memory of this process."""
    import ctypes

    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(CLOSE_TO_OTHERS, 0)


if __name__ == "__main__":
    close_to_others()
    os.chdir("/")
    Sentinel().run()
