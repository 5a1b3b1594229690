"""The agent's end of the warden (warden.py is the other process)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, cast

import structlog

log = structlog.get_logger()
ROOT = Path(__file__).resolve().parents[2]


def module_environment(environment: dict[str, str]) -> dict[str, str]:
    """`environment` in which `python -m jobs.agent.…` is found whatever directory the agent was started in."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)])}


class Warding:
    """Tells the warden which process groups are ours; starts it again when it has died. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._fence: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def keep(self) -> None:
        """See to it that a warden runs and knows everything. Main thread only (it spawns)."""
        with self._lock:
            if self._process and self._process.poll() is None:
                return
            if self._process:
                log.warning("Warden died, starting another", status=self._process.returncode)
                self._drop()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobs.agent.warden"],
                stdin=subprocess.PIPE,
                env=module_environment(dict(os.environ)),
                start_new_session=True,
            )
            self._pipe = cast(IO[bytes], self._process.stdin)
            # A warden that was stopped must not stop us: a full pipe is an error, and gets it replaced.
            os.set_blocking(self._pipe.fileno(), False)
            self._write([f"+{group}" for group in self._groups] + [self._fence_line()])

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._write([f"+{group}"])

    def remove(self, group: int) -> None:
        """Before the group's leader is reaped, so that its number cannot be another's yet."""
        with self._lock:
            self._groups.discard(group)
            self._write([f"-{group}"])

    def fence_at(self, deadline: float | None) -> None:
        """Kill every group at that reading of the uptime clock (None: never)."""
        with self._lock:
            self._fence = deadline
            self._write([self._fence_line()])

    def close(self) -> None:
        """Kills every group that is left, for it is the end of the warden's input."""
        with self._lock:
            if process := self._process:
                self._drop()
                try:
                    process.wait(timeout=2)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                self._process = None

    def _fence_line(self) -> str:
        return "=" if self._fence is None else f"={self._fence!r}"

    def _write(self, lines: list[str]) -> None:
        if self._process is None or self._pipe is None:
            return
        data = "".join(line + "\n" for line in lines).encode()
        try:
            written = os.write(self._pipe.fileno(), data)
        except BrokenPipeError:
            return  # dead: `keep` starts another, which is told everything
        except BlockingIOError:
            written = 0
        if written < len(data):
            self._process.kill()

    def _drop(self) -> None:
        if self._pipe:
            with contextlib.suppress(OSError):
                self._pipe.close()
            self._pipe = None
