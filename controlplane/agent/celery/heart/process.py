"""The heart process of a Celery worker.

It imports neither Django nor code of the application, so neither can stop its heartbeats. It reads messages of its
worker from stdin (the first is the greeting) and writes orders to stdout. When the worker ends, stdin ends. Then the
heart kills leftover processes, returns the worker's messages, reports the final state, and ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.celery.deadline import Deadline
from controlplane.agent.celery.heart.broker_watch import BrokerWatch
from controlplane.agent.celery.heart.claims import CeleryClaims
from controlplane.agent.celery.heart.fast_recovery import HeartRecovery
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.heartbeats import WorkerConnection
from controlplane.agent.celery.heart.leftover_processes import is_stopped, kill_leftovers
from controlplane.agent.celery.heart.rabbit_watch import RabbitWatch, alive_for
from controlplane.agent.celery.heart.redis_watch import RedisWatch
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import (
    ConsumerConnected,
    FailureStored,
    ForgetEnds,
    Greeting,
    LoopProgress,
    Order,
    WorkerEnding,
    WorkerStopping,
    decode,
    encode,
)
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
LOOK_EVERY = 0.5  # seconds; short, because select() does not count the time of a suspended machine
LAST_MESSAGES_WITHIN = 0.2  # seconds to wait for the end of the pipe after the end of the worker
RESTORE_FOR = 900.0  # seconds that a heart has after the end of its worker to return the messages


class HeartProcess:
    """Main thread of the heart. It reads messages, enforces the fence, and cleans up after the worker.

    `main` is the process id of the worker's main process.
    """

    def __init__(self, greeting: Greeting, deadline: Deadline, main: int) -> None:
        self._greeting, self._main = greeting, main
        self.instance = greeting.instance
        self._session = os.getsid(main)
        self._watch_main = os.pidfd_open(main) if hasattr(os, "pidfd_open") else None
        self._orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stopping = False
        self._ending: str | None = None  # the final state that the worker has sent
        self._killed_for: str | None = None
        self._ticked_at = read_uptime()
        self._progress = LoopProgress()
        self.records = TaskRecords(greeting.record, unrecorded=greeting.own_queue)
        self.fence = TwoWitnesses(greeting.condemned_for, deadline.write, alive_for=alive_for(greeting))
        kind: Callable[..., BrokerWatch] = RedisWatch if greeting.kind == "redis" else RabbitWatch
        self.watch = kind(greeting, self.fence, self.records, self)
        self.recovery = HeartRecovery(greeting, main, self.watch.rescue.record_end)
        self.claims = self._make_claims(greeting.own_queue, greeting.folder)
        self.connection = WorkerConnection(
            greeting,
            self.fence,
            self.records,
            self.watch.rescue,
            self.claims,
            self.recovery,
            lost=self.stop_code,
            order=self.order,
            fenced=self.enforce_fence,
            is_stopped=self.main_is_stopped,
            problem=lambda: self.watch.problem,
        )

    # Used by any thread

    def main_is_stopped(self) -> bool:
        return is_stopped(self._main)

    def order(self, order: Order) -> None:
        """Send an order to the worker's main process. It reads orders twice a second. Do not wait."""
        self._orders.put(encode(order))

    def stop_code(self, reason: str) -> None:
        """Kill all processes of the worker now. Its main process ends too, so that a supervisor restarts the worker."""
        if self._killed_for is None:
            self._killed_for = reason
            log.error("Stopping this worker", why=reason, **self.records.counts())
            with contextlib.suppress(ProcessLookupError):
                if self._watch_main is not None:
                    signal.pidfd_send_signal(self._watch_main, signal.SIGKILL)
                elif os.getppid() == self._main:
                    os.kill(self._main, signal.SIGKILL)

    def enforce_fence(self) -> None:
        """Stop the worker if its permission to run code has ended."""
        if self.fence.has_passed() and self.records.holds():
            self.stop_code("fenced: neither the control plane nor the broker was reached in time")

    def progress(self) -> tuple[LoopProgress, float]:
        """Return the latest progress of the worker's main loop, and its age in seconds."""
        return self._progress, 0.0 if self._stopping else read_uptime() - self._ticked_at

    # Used by the main thread

    def run(self) -> None:
        threads: list[Any] = [self.connection, self.watch, threading.Thread(target=self._record, daemon=True)]
        threads.append(threading.Thread(target=self._write_orders, daemon=True))
        for thread in threads:
            thread.start()
        self.recovery.begin()
        self._read_stream()
        self._finish()

    def _record(self) -> None:
        while True:
            time.sleep(1.0)
            try:
                self.connection.record()
                if attempts := self.records.take_known_ends():
                    self.order(ForgetEnds(attempts))
            except Exception:
                log.exception("Records of tasks were not sent")

    def _write_orders(self) -> None:
        while True:
            data = self._orders.get()
            with contextlib.suppress(OSError):
                while data:
                    data = data[os.write(1, data) :]

    def _make_claims(self, queue: str | None, folder: str | None) -> CeleryClaims | None:
        if queue is None or folder is None:
            return None
        description = self._greeting.description
        return CeleryClaims(
            queue=queue,
            folder=Path(folder),
            slots=description["max_concurrent"],
            main=self._main,
            is_prefork=description["capabilities"]["pool"] == "prefork",
            fence=self.fence,
            order=self.order,
        )

    def _look_at_claims(self) -> None:
        if self.claims:
            running = self.records.counts()["running"]
            takes = self.connection.is_running and self._progress.takes
            self.claims.look(running, takes=takes, open_=self.connection.consumes)

    def _read_stream(self) -> None:
        pending, gone_at = b"", None
        sources = [0] if self._watch_main is None else [0, self._watch_main]
        while True:
            ready = select.select(sources, [], [], LAST_MESSAGES_WITHIN if gone_at else LOOK_EVERY)[0]
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
                return  # another process still holds the pipe

    def _read(self, data: bytes) -> None:
        try:
            match message := decode(data):
                case LoopProgress():
                    self._progress, self._ticked_at = message, read_uptime()
                case ConsumerConnected():
                    self.connection.repeat_orders()
                case WorkerStopping():
                    self._stopping = True
                    if self.claims:
                        self.claims.close("terminating")
                    self.connection.report_state("TERMINATING")
                case WorkerEnding(state):
                    self._ending = state
                case FailureStored():
                    self.watch.record_stored(message)
                case _:
                    self.records.read(message)
                    if self.claims:
                        self.claims.read(message)
        except Exception:  # one bad message must not end the heart
            log.exception("A message of the worker was not processed", line=data[:200])

    def _enforce_drain(self) -> None:
        if (at := self.connection.drain_at) is not None and time.time() >= at:
            self._ending = "TERMINATED_FORCED"
            self.stop_code("the deadline of the drain has passed")

    def _finish(self) -> None:
        # After TERMINATING, the control plane does not accept ERROR.
        state = self._ending or ("TERMINATED_FORCED" if self._stopping else "ERROR")
        # If the worker was ordered to end, or its heart stopped it, no task has ended it.
        running = set() if self._stopping or self._killed_for else self.records.running()
        pids = self.records.pids()
        log.info("Worker has ended", state=state, why=self._killed_for)
        if state != "TERMINATED_GRACEFULLY" or self.records.counts()["running"]:
            kill_leftovers(self.instance, self._session, pids, spare=self._main)
        self.recovery.forget_code()
        self.watch.stop()
        until = time.monotonic() + RESTORE_FOR
        done = self.watch.give_back_own(running, self._killed_for or state)
        if self.claims:
            self.claims.finish(running)
            shutil.rmtree(self.claims.folder, ignore_errors=True)
        self.connection.record()  # send the reasons before the control plane ends these tasks itself
        is_sent = self.connection.end(state)
        while self.connection.record():
            pass
        while not done and time.monotonic() < until:
            time.sleep(1.0)
            done = self.watch.give_back_own(running, self._killed_for or state)
        if not is_sent:
            is_sent = self.connection.end(state)
        self.recovery.close(is_end_known=is_sent)
        if server := self.connection.server:
            log.info(f"Deregistering worker ID: {server.id}", gave_back=done)
