"""The heart of a Celery worker, a process of its own: `python -m controlplane.agent.celery.heart DEADLINE_FD`.

Neither Django nor any of the user's code is in it, so that nothing of theirs can silence it. It reads lines of JSON
from its worker on stdin (the first is the greeting) and writes orders on stdout. The end of its worker is the end of
stdin: then it kills what is left, gives the worker's messages back, says how it ended, and ends.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import queue
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.celery.beats import Beats
from controlplane.agent.celery.claims import Claims
from controlplane.agent.celery.deadline import Deadline
from controlplane.agent.celery.fence import TwoWitnesses
from controlplane.agent.celery.ledger import Ledger
from controlplane.agent.celery.remains import is_stopped, kill_remains
from controlplane.agent.celery.vigil import RabbitVigil, RedisVigil, Vigil
from controlplane.agent.fence import read_uptime
from controlplane.agent.secret_values import mask_event

log = structlog.get_logger()
LOOK = 0.5  # seconds: select() does not count time asleep
GRACE_OF_LAST_LINES = 0.2  # seconds between a worker's end and that of its pipe, where both come
RESTORE_FOR = 900.0  # seconds that a heart outlives its worker to give back what that held


class Heart:
    """The main thread: reads the worker's lines, sees to the fence, and does the end."""

    def __init__(self, hello: dict[str, Any], deadline: Deadline, main: int) -> None:
        self._hello, self._main = hello, main
        options = hello["options"]
        self.instance: str = hello["instance"]
        self._session = os.getsid(main)
        self._watch_main = os.pidfd_open(main) if hasattr(os, "pidfd_open") else None
        self._orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stopping = False
        self._ending: str | None = None  # the worker's own word for how it ends
        self._killed_for: str | None = None
        self._ticked_at = read_uptime()
        self._progress: dict[str, Any] = {}
        self.ledger = Ledger(options["record"], unrecorded=hello["own_queue"])
        broker_decides = hello["kind"] != "redis"
        self.fence = TwoWitnesses(options["condemned_for"], deadline.write, broker_decides=broker_decides)
        kind: Callable[..., Vigil] = RabbitVigil if broker_decides else RedisVigil
        self.vigil = kind(hello, self.fence, self.ledger, self)
        self.claims = self._make_claims() if hello["own_queue"] else None
        self.beats = Beats(
            hello,
            self.fence,
            self.ledger,
            self.vigil.rescue,
            self.claims,
            lost=self.stop_code,
            obey=self.order,
            fenced=self.enforce_fence,
            stopped=self.main_is_stopped,
            problem=lambda: self.vigil.problem,
        )

    # From any thread

    def main_is_stopped(self) -> bool:
        return is_stopped(self._main)

    def order(self, order: dict[str, Any]) -> None:
        """Tell the worker's main process, which looks twice a second; nobody waits for that."""
        self._orders.put(json.dumps(order).encode() + b"\n")

    def stop_code(self, reason: str) -> None:
        """All code of the worker ends now. Its main process too, so that whatever started it starts it anew."""
        if self._killed_for is None:
            self._killed_for = reason
            log.error("Stopping this worker", why=reason, **self.ledger.counts())
            with contextlib.suppress(ProcessLookupError):
                if self._watch_main is not None:
                    signal.pidfd_send_signal(self._watch_main, signal.SIGKILL)
                elif os.getppid() == self._main:
                    os.kill(self._main, signal.SIGKILL)

    def enforce_fence(self) -> None:
        if self.fence.has_passed() and self.ledger.holds():
            self.stop_code("fenced: neither the control plane nor the broker was reached in time")

    def progress(self) -> tuple[dict[str, Any], float]:
        """What the worker's main loop last said of itself, and how many seconds ago."""
        return self._progress, 0.0 if self._stopping else read_uptime() - self._ticked_at

    # The main thread

    def run(self) -> None:
        threads: list[Any] = [self.beats, self.vigil, threading.Thread(target=self._record, daemon=True)]
        threads.append(threading.Thread(target=self._write_orders, daemon=True))
        for thread in threads:
            thread.start()
        self._read_stream()
        self._finish()

    def _record(self) -> None:
        while True:
            time.sleep(1.0)
            try:
                self.beats.record()
            except Exception:
                log.exception("Tasks not recorded")

    def _write_orders(self) -> None:
        while True:
            data = self._orders.get()
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(1, data) :]

    def _make_claims(self) -> Claims:
        description = self._hello["description"]
        return Claims(
            queue=self._hello["own_queue"],
            folder=Path(self._hello["folder"]),
            slots=description["max_concurrent"],
            main=self._main,
            is_prefork=description["capabilities"]["pool"] == "prefork",
            fence=self.fence,
            order=self.order,
        )

    def _look_at_claims(self) -> None:
        if self.claims:
            running = self.ledger.counts()["running"]
            takes = self.beats.is_running and bool(self._progress.get("takes"))
            self.claims.look(running, takes=takes, open_=self.beats.consumes)

    def _read_stream(self) -> None:
        pending, gone_at = b"", None
        sources = [0] if self._watch_main is None else [0, self._watch_main]
        while True:
            ready = select.select(sources, [], [], GRACE_OF_LAST_LINES if gone_at else LOOK)[0]
            self.enforce_fence()
            self._enforce_drain()
            self._look_at_claims()
            if self._watch_main in ready and gone_at is None:
                gone_at = time.monotonic()
                sources = [0]
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self._read(line)
            elif gone_at:
                return  # somebody else still holds the pipe

    def _read(self, data: bytes) -> None:
        try:
            line = json.loads(data)
            match line[0]:
                case ".":
                    self._progress, self._ticked_at = line[1], read_uptime()
                case "connected":
                    self.beats.repeat_orders()
                case "stopping":
                    self._stopping = True
                    if self.claims:
                        self.claims.close("terminating")
                    self.beats.report_state("TERMINATING")
                case "bye":
                    self._ending = line[1]
                case "reported":
                    self.vigil.reported(line[1])
                case _:
                    self.ledger.read(line)
                    if self.claims:
                        self.claims.read(line)
        except Exception:  # commentary must not end the heart
            log.exception("Line of the worker not understood", line=data[:200])

    def _enforce_drain(self) -> None:
        if (at := self.beats.drain_at) is not None and time.time() >= at:
            self._ending = "TERMINATED_FORCED"
            self.stop_code("the drain's deadline")

    def _finish(self) -> None:
        # Who said TERMINATING cannot say ERROR any more.
        state = self._ending or ("TERMINATED_FORCED" if self._stopping else "ERROR")
        # Whoever was told to end, or was cut off, was not ended by a task.
        running = set() if self._stopping or self._killed_for else self.ledger.running()
        pids = self.ledger.pids()
        log.info("Worker has ended", state=state, why=self._killed_for)
        if state != "TERMINATED_GRACEFULLY" or self.ledger.counts()["running"]:
            kill_remains(self.instance, self._session, pids, spare=self._main)
        self.vigil.stop()
        until = time.monotonic() + RESTORE_FOR
        done = self.vigil.give_back_own(running, self._killed_for or state)
        if self.claims:
            self.claims.finish(running)
            shutil.rmtree(self._hello["folder"], ignore_errors=True)
        self.beats.record()  # why, before the control plane finds that out by itself
        is_sent = self.beats.end(state)
        while self.beats.record():
            pass
        while not done and time.monotonic() < until:
            time.sleep(1.0)
            done = self.vigil.give_back_own(running, self._killed_for or state)
        if not is_sent:
            self.beats.end(state)
        log.info(f"Deregistering worker ID: {self.beats.server.id if self.beats.server else None}", gave_back=done)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    hello = json.loads(_first_line())
    hello["connection"] = pickle.loads(base64.b64decode(hello["connection"]))  # noqa: S301 (from our own parent)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
            mask_event,
            structlog.dev.ConsoleRenderer(colors=False, sort_keys=False, pad_event_to=0),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(hello.get("log_level", 20)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    Heart(hello, Deadline(int(sys.argv[1])), parent).run()


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # no more than the line, for the rest is read by select
        if not byte:
            sys.exit(0)
        line += byte
    return line


if __name__ == "__main__":
    main()
