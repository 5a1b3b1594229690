"""Celery on Redis with its defaults, as a reference for Django tasks."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis

from tests.bench.cost import seconds_of_family
from tests.support.processes import ROOT, eventually
from tests.support.services import Redis

APP = "tests.bench.celery_noop"


@dataclass
class CeleryBackend:
    broker: Redis
    tasks: int
    env: dict[str, str]
    cpu_ms: list[float] = field(default_factory=list)
    """Milliseconds of CPU of each task in the worker and Redis together, one figure for each round."""

    def enqueue(self) -> float:
        """Return the enqueued tasks per second, one after the other."""
        command = [sys.executable, "-m", APP, str(self.tasks)]
        done = subprocess.run(command, env=self.env, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
        return float(done.stdout)

    def work_off(self) -> float:
        """Return the executed tasks per second, two at once, without the first tenth, in which the worker starts."""
        command = [sys.executable, "-m", "celery", "-A", APP, "worker", "--concurrency", "2", "--loglevel", "warning"]
        worker = subprocess.Popen(command, env=self.env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with redis.Redis.from_url(self.broker.url) as client:

            def left() -> int:
                return client.llen("celery") + client.hlen("unacked")

            try:
                all_tasks = left()
                eventually(lambda: left() <= 0.9 * all_tasks, why="the worker has started")
                first, began, spent = left(), time.monotonic(), self.read_spent(worker.pid)
                eventually(lambda: not left(), why="all is done")
                seconds = time.monotonic() - began
                self.cpu_ms.append(1000 * (self.read_spent(worker.pid) - spent) / first)
            finally:
                worker.terminate()
                worker.wait(30)
        return first / seconds

    def read_spent(self, worker: int) -> float:
        return sum(seconds_of_family(psutil.Process(pid)) for pid in (worker, self.broker.server.pid))


@contextmanager
def celery_on_redis(folder: Path, tasks: int) -> Iterator[CeleryBackend]:
    folder.mkdir()
    with Redis(folder) as broker:
        yield CeleryBackend(broker, tasks, {**os.environ, "BROKER_URL": broker.url})
