"""The worker's end of its heart: starts it, tells it what happens, hears its orders. Nothing here waits."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from controlplane.agent import environment
from controlplane.agent.celery.deadline import Deadline

log = logging.getLogger(__name__)
LINE = 4000  # bytes: a pipe takes up to 4096 whole or not at all


class Link:
    """One worker's; used by its main process alone."""

    def __init__(self, hello: dict[str, Any], held: Callable[[], Iterable[list[Any]]]) -> None:
        self.deadline = Deadline.made()
        self._hello = {**hello, "connection": base64.b64encode(pickle.dumps(hello["connection"])).decode()}
        self._held = held
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = self._orders = -1
        self._pending = b""
        self._dropped = False
        self._owner = os.getpid()
        self._ended = False
        os.register_at_fork(after_in_child=self._close)  # a child that held the pipe would hide our end

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def keep(self) -> None:
        """See to it that a heart beats and knows everything."""
        if self._ended or (self._process and self._process.poll() is None):
            return
        if self._process:
            log.warning("The heart died (status %s), starting another", self._process.returncode)
            self._close()
        (stdin, self._pipe), (self._orders, stdout) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.agent.celery.heart", str(self.deadline.descriptor)],
            stdin=stdin,
            stdout=stdout,
            env=environment.with_modules({**os.environ, "PYTHONWARNINGS": "ignore"}),
            pass_fds=[self.deadline.descriptor],
            start_new_session=True,  # what is sent to the worker's group is not for it
        )
        os.close(stdin)
        os.close(stdout)
        os.write(self._pipe, json.dumps(self._hello).encode() + b"\n")
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._orders, False)
        self._pending, self._dropped = b"", False
        for line in self._held():
            self.tell(*line)

    def tell(self, *line: Any) -> None:
        """One line; dropped where the heart does not read, or where it is too long even without its last field."""
        data = json.dumps(line, default=str).encode() + b"\n"
        if len(data) > LINE:
            data = json.dumps([field[:200] if isinstance(field, str) else field for field in line]).encode() + b"\n"
        if self._dropped:
            data = b'["!"]\n' + data
        try:
            os.write(self._pipe, data)
        except BlockingIOError:
            self._dropped = True
        except OSError:
            pass  # it died: `keep` starts another, which is told everything
        else:
            self._dropped = False

    def orders(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError):
            while data := os.read(self._orders, 65536):
                self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        return [json.loads(line) for line in lines]

    def part(self, state: str, within: float) -> None:
        """Say how this worker ends, and wait for the heart to have said it: where we are the first process of a
        container, it ends with us."""
        if os.getpid() != self._owner or self._ended or not self._process:
            return
        self._ended = True
        self.tell("bye", state)
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)

    def _close(self) -> None:
        for descriptor in (self._pipe, self._orders):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._pipe = self._orders = -1
