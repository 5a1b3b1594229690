"""Random faults of a control plane from a seed: killed workers, web servers and executors, restarts of PostgreSQL.

Beside them run sweeps at random, and the calls of a test. At the end the faults stop, and everything must end.
"""

import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import urllib3
from psycopg.rows import dict_row

from tests.support import services
from tests.support.processes import ROOT, Fleet, eventually, fleet, free_port, freeze, thaw
from tests.support.stress_programs import SWEEPS, TOKENS, WORK

CONCURRENCY = 4
SETTINGS = {
    "CELERY_BROKER_URL": "filesystem://",
    "LIVENESS_TIMEOUT": "3",
    "LIVENESS_BRAKE_MINIMUM": "none",
    "JOBS_CANCEL_TIMEOUT": "4",
    "JOBS_MAX_RESUBMISSIONS": "2",
}
ERRORS = re.compile(r" (ERROR|FATAL|PANIC): +(.*)")
# What a restart and waiting for locks cause. Everything else in PostgreSQL's log is a fault of the product.
EXPECTED_ERRORS = re.compile(
    r"the database system is|terminating connection|lock timeout|statement timeout|user request|could not receive data"
)


class Stress:
    """Control plane with two web servers, an executor, sweeps at random, and workers. `call` calls its API."""

    def __init__(self, running: Fleet, database: services.Postgresql, seed: int) -> None:
        self.running, self.database, self.seed = running, database, seed
        self.chance = random.Random(f"{seed} faults")
        self.ports = [free_port(), free_port()]
        self.serial = 0
        self.agents: dict[str, tuple[str, ...]] = {}
        self.parts: dict[str, str] = {}
        self.failures: list[str] = []
        self.is_over = threading.Event()
        self.lines = running.folder / "lines"
        self.ticks = running.folder / "ticks"
        self.done: list[str] = []
        self.log_begins = (database.data / "log").stat().st_size

    def start_part(self, part: str) -> None:
        """Start a part under a new name, so that each log is kept."""
        self.serial += 1
        name = self.parts[part] = f"{part}.{self.serial}"
        if part.startswith("web"):
            self.running.web(name, port=self.ports[int(part[-1])], is_awaited=False)
        elif part == "executor":
            self.running.executor(name, "--beat")
        elif part == "sweeps":
            self.running.start(name, "-c", SWEEPS, f"{self.seed} {self.serial}", str(self.ticks))
        else:
            namespace, *options = self.agents[part]
            port = self.ports[self.serial % 2]
            self.running.agent(
                name, f"http://127.0.0.1:{port}", "--concurrency", str(CONCURRENCY), *options,
                is_fast="IMMEDIATELY" in options, role="worker" if namespace == "default" else f"{namespace} worker",
            )  # fmt: skip

    def kill_part(self, part: str) -> None:
        name = self.parts[part]
        self.running.kill(name)
        del self.running.processes[name]

    def restart_part(self, part: str) -> None:
        self.kill_part(part)
        self.start_part(part)

    def freeze_agent(self, part: str) -> None:
        """Freeze an agent for longer than its timeout. Its reaper stops its code in time."""
        process = self.running.processes[self.parts[part]]
        if process.poll() is not None:
            return
        freeze(process)
        self.is_over.wait(self.chance.uniform(1, 6))
        thaw(process)

    def restart_database(self) -> None:
        self.database.stop()
        self.is_over.wait(self.chance.uniform(0, 2))
        self.database.start()

    def do_faults(self, seconds: float) -> None:
        """Do random faults for so long, then start what has ended."""
        end = time.monotonic() + seconds
        names = ["kill", "kill", "kill", "kill", "freeze", "web", "web", "database", "database", "executor"]
        faults: list[str] = []
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(1, 4))
            faults = faults or self.chance.sample(names, len(names))
            fault, agent = faults.pop(), self.chance.choice(sorted(self.agents))
            self.done.append(f"{time.time():.1f} {fault}")
            match fault:
                case "kill":
                    self.restart_part(agent)
                case "freeze":
                    self.freeze_agent(agent)
                case "web":
                    self.restart_part(self.chance.choice(["web0", "web1"]))
                case "executor":
                    self.restart_part("executor")
                case "database":
                    self.restart_database()
            self.start_ended()

    def start_ended(self) -> None:
        """Start agents that have ended, for instance because they were declared dead. No other part ends by itself."""
        for part, name in list(self.parts.items()):
            if self.running.processes[name].poll() is not None:
                if part not in self.agents:
                    self.failures.append(f"{name} ended by itself")
                self.restart_part(part)

    def call(self, method: str, path: str, role: str = "client", body: Any = None, **headers: str) -> tuple[int, Any]:
        """Call one of the web servers. Return the status and the body; the status is 0 if nothing is known."""
        url = f"http://127.0.0.1:{random.choice(self.ports)}/api/v1{path}"
        headers["Authorization"] = f"Bearer {self.running.token(role)}"
        try:
            answer = self.running.http.request(method, url, json=body, headers=headers, timeout=10)
        except urllib3.exceptions.HTTPError:
            return 0, None
        read = answer.json() if answer.data else None
        if answer.status == 503 or (answer.status == 429 and read["code"] == "too_many_calls"):
            return 0, None
        if answer.status >= 500:
            self.failures.append(f"{method} {path} {body}: {answer.status} {read}")
        return answer.status, read

    def surely(self, method: str, path: str, role: str = "client", body: Any = None, **headers: str) -> tuple[int, Any]:
        """Repeat a call until it has an answer."""
        return eventually(lambda: (done := self.call(method, path, role, body, **headers))[0] and done)

    def eventually(self, what: Callable[[], object], within: float, why: str | Callable[[], object] = "") -> None:
        """Wait until all is as it should be. Agents that end because they were declared dead are started again."""

        def look() -> object:
            self.start_ended()
            return what()

        eventually(look, within=within, why=why)

    def left_over(self) -> dict[str, int]:
        """Return how many slots, taken attempts, notes and jobs are left that should be gone when all has ended."""
        return {
            table: self.query(f"select count(*) from {table} {condition}")[0]["count"]  # noqa: S608
            for table, condition in (
                ("jobs_limitslot", ""),
                ("jobs_limitrecheck", ""),
                ("jobs_takenattempt", ""),
                ("jobs_workerjob", "where finished_at is null"),
            )
        }

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.database.url, row_factory=dict_row) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]

    def repeat(self, act: Callable[[random.Random], None], pause: float) -> Callable[[], None]:
        """Return a function that acts until the faults are over, with random pauses."""
        chance = random.Random(f"{self.seed} {act.__name__}")

        def run() -> None:
            while not self.is_over.wait(pause * 2 * chance.random()):
                act(chance)

        return run

    def run(self, acts: dict[Callable[[random.Random], None], float], seconds: float) -> None:
        """Do faults for so long while these functions act, each with its mean pause in seconds."""
        with ThreadPoolExecutor(len(acts)) as pool:
            calls: list[Future[None]] = [pool.submit(self.repeat(act, pause)) for act, pause in acts.items()]
            try:
                self.do_faults(seconds)
            finally:
                self.is_over.set()
            for call in calls:
                call.result(120)
        for port in self.ports:
            eventually(lambda port=port: self.running.answers(f"http://127.0.0.1:{port}/readyz"), why="web is ready")  # type: ignore[misc]
        self.start_ended()

    def database_errors(self) -> list[str]:
        """Return the errors in PostgreSQL's log that a restart does not explain, for instance deadlocks."""
        log = (self.database.data / "log").read_text(errors="replace")[self.log_begins :]
        (self.running.folder / "postgresql.log").write_text(log)
        found = {text for _, text in ERRORS.findall(log)}
        return sorted(text for text in found if not EXPECTED_ERRORS.search(text))


@contextmanager
def stress(folder: Path, agents: dict[str, tuple[str, ...]], **settings: str) -> Iterator[Stress]:
    """Yield a running control plane. `agents` are namespaces and options by name. STRESS_SEED repeats a run."""
    seed = int(os.environ.get("STRESS_SEED") or random.randrange(10**6))
    sys.stdout.write(f"STRESS_SEED={seed}\n")
    (folder / "stress_work.py").write_text(WORK)
    variables = {
        "PYTHONPATH": f"{ROOT}:{folder}",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "STRESS_LINES": str(folder / "lines"),
    }
    with (
        services.Postgresql() as database,
        fleet(folder, DATABASE_URL=database.url, **SETTINGS, **variables, **settings) as running,
    ):
        running.run("manage.py", "migrate", "--verbosity", "0")
        namespaces = {namespace for namespace, *_ in agents.values()}
        running.tokens.update(json.loads(running.run("-c", TOKENS, *sorted(namespaces))))
        one = Stress(running, database, seed)
        one.agents = agents
        for part in ("web0", "web1", "executor", "sweeps", *agents):
            one.start_part(part)
        alive = "select from liveness_server where type = 'WORKER' and state = 'RUNNING'"
        eventually(lambda: len(one.query(alive)) == len(agents), why="the workers run")
        yield one
