"""Workers of a protected application on a real broker, and the events that their tasks wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis
from celery import Celery

from tests.support.celery_plane import CeleryPlane
from tests.support.processes import ROOT, WITHOUT_RICH, eventually

UNTIL_RELEASED = 600.0  # seconds of `work`: longer than any test


@dataclass
class Entry:
    name: str
    what: str
    at: float
    pid: int


@dataclass
class Sent:
    """A task that was sent."""

    app: Celery
    id: str

    @property
    def state(self) -> str:
        return str(self.app.backend.get_state(self.id))

    @property
    def result(self) -> Any:
        return self.app.backend.get_result(self.id)


class CeleryFleet:
    """Protected workers, each in its own process group, with the environment `env`.

    Each worker has its own state folder, as if it were on its own machine.
    """

    def __init__(self, folder: Path, broker: str, url: str, token: str, **env: str) -> None:
        self.folder, self.broker = folder, broker
        self.events = folder / "events"
        self.events.touch()
        backend = env.pop("BACKEND", broker if broker.startswith("redis") else "")
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("LIVENESS_", "JOBS_", "DJANGO"))},
            "BROKER": broker,
            "BACKEND": backend,
            "EVENTS": str(self.events),
            "CONTROLPLANE_URL": url,
            "CONTROLPLANE_TOKEN": token,
            "CONTROLPLANE_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": os.pathsep.join([WITHOUT_RICH, str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            **env,
        }
        self.app = Celery("producer", broker=broker, backend=backend or None, set_as_current=False)
        self.app.conf.task_default_queue = "orders"
        # Tests poll for results, because a listener would outlive the broker of its test.
        if backend:
            self.app.backend.on_task_call = lambda *_, **__: None
            self.app.backend.result_consumer.consume_from = lambda *_, **__: None
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        if broker.startswith("redis"):
            self.redis = redis.Redis.from_url(broker)

    def worker(
        self, name: str, *options: str, pool: str = "prefork", concurrency: int = 1, prefix: Sequence[str] = (),
        **env: str,
    ) -> Any:  # fmt: skip
        env = {"CONTROLPLANE_STATE_DIR": str(self.folder / f"state-{name}"), **env}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *prefix, sys.executable, "-W", "ignore", "-m", "celery", "-A", "tests.support.celery_app", "worker",
                    "--pool", pool, "--concurrency", str(concurrency), "--hostname", f"{name}@host",
                    "--loglevel", "info", "--without-mingle", "--without-gossip", *options,
                ],
                env={**self.env, **env}, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return self.processes[name]

    def ready(self, *names: str) -> None:
        for name in names:
            eventually(lambda name=name: " ready." in self.log(name), within=240, why=f"{name} is ready")

    def send(self, task: str, *args: Any, id: str | None = None, **options: Any) -> Any:
        return Sent(self.app, self.app.send_task(f"tests.support.celery_app.{task}", args, task_id=id, **options).id)

    def release(self, *names: str) -> None:
        """End the present and future tasks `work` with these names."""
        for name in names:
            Path(f"{self.events}.{name}").touch()

    def start(self, signature: Any) -> Sent:
        """Send a chain or a chord. Return its last task."""
        return Sent(self.app, signature.apply_async().id)

    def entries(self, what: str | None = None) -> list[Entry]:
        lines = [line.split() for line in self.events.read_text().splitlines()]
        entries = [Entry(name, event, float(at), int(pid)) for name, event, at, pid in lines]
        return [entry for entry in entries if what in (None, entry.what)]

    def count(self, what: str) -> Counter[str]:
        return Counter(entry.name for entry in self.entries(what))

    def begun(self, name: str, times: int = 1, within: float = 120) -> Entry:
        """Wait until a task has started `times` times. Return the event of the last start."""
        eventually(lambda: self.count("start")[name] >= times, within=within, why=f"{name} begins {times} times")
        return [entry for entry in self.entries("start") if entry.name == name][times - 1]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def unacked(self) -> int:
        return sum(self.redis.hlen(key) for key in self.redis.scan_iter("unacked:*"))

    def heart_of(self, name: str) -> int:
        children = psutil.Process(self.processes[name].pid).children()
        return next(child.pid for child in children if "controlplane.agent.celery.heart" in child.cmdline())

    def kill(self, name: str, number: int = signal.SIGKILL, *, heart: bool = False) -> None:
        """Send a signal to a worker's process group.

        With `heart`, also send it to its heart, as if the host were lost.
        """
        if heart:
            os.kill(self.heart_of(name), number)
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, number)
        if number == signal.SIGKILL:
            self.processes[name].wait(10)

    def stop(self) -> None:
        for name, process in self.processes.items():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            sys.stderr.write(f"--- {name}\n{self.log(name)[-6000:]}")
        # Hearts outlive their workers to return messages, and the broker of the test is about to end. Without a heart,
        # the processes that a task started continue, too.
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get("EVENTS") == str(self.events):
                    process.kill()


@contextmanager
def celery_fleet(folder: Path, broker: str, url: str, *token: str, **env: str) -> Iterator[CeleryFleet]:
    running = CeleryFleet(folder, broker, url, *(token or ("t",)), **env)
    try:
        yield running
    finally:
        running.stop()


def registered(plane: CeleryPlane, *names: str) -> None:
    """Wait until these workers send heartbeats."""
    for name in names:
        eventually(lambda name=name: plane.beats_of(name) > 1, why=f"{name} beats")


def judged_soon(plane: CeleryPlane, *names: str) -> None:
    """Judge these workers by the short timeout from now on. Wait until their hearts know the short fence."""
    for name in names:
        plane.judge_soon(name)
        server = plane.server(f"{name}@host")
        # The second heartbeat starts after the answer to the first one was read.
        enough = server["beats"] + 2
        eventually(lambda server=server, enough=enough: server["beats"] >= enough, why=f"{name} beats")


def ended(fleet: CeleryFleet, *names: str, within: float = 120) -> None:
    """Wait until the tasks with these names have ended."""
    eventually(lambda: all(fleet.count("end")[name] for name in names), within=within, why=f"{names} end")


def last_line(fleet: CeleryFleet, name: str, pid: int) -> float:
    """Return the time of the latest event of a task in a process."""
    return max(entry.at for entry in fleet.entries() if entry.name == name and entry.pid == pid)
