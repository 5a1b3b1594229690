"""Django tasks on our backend, django-tasks-db and django-ox: same PostgreSQL, same tasks, two at once, real workers.

The other two are installed for this run, in a separate environment, with the same Django.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import django
import psutil
import psycopg

from tests.bench.cost import seconds_of_family
from tests.bench.database import begin, run
from tests.bench.rows import Row, Step, alternate
from tests.support.processes import SHORT, Fleet, beside, drop, eventually, fleet, server
from tests.support.pythons import make_environment

TASKS = 1000
WAITED = 420.0
"""Seconds to wait after a crash. A lease of django-ox lasts 300."""
PACKAGES = (f"django=={django.__version__}", "psycopg[binary]", "django-tasks-db[compat]", "django-ox[backport]")
OURS = "tests.support.project_settings"
FINISHED = "select extract(epoch from finished_at) from {} where finished_at is not null order by finished_at"


@dataclass
class Backend:
    fleet: Fleet
    table: str
    start: Callable[..., None]
    """Function that starts workers with this name, number of parallel tasks and options."""
    sent: int = 0
    cpu_ms: list[float] = field(default_factory=list)
    """Milliseconds of CPU of each task in all processes together, one figure for each round."""

    def read_spent(self) -> float:
        """Return the CPU seconds of PostgreSQL and of all processes of this backend."""
        postmaster = psutil.Process(run("select pg_backend_pid()")).parent()
        processes = [psutil.Process(process.pid) for process in self.fleet.processes.values() if process.poll() is None]
        return sum(map(seconds_of_family, filter(None, [postmaster, *processes])))

    def enqueue(self) -> float:
        """Return the enqueued tasks per second, one after the other."""
        return self.send("nothing", TASKS)

    def send(self, task: str, number: int, *arguments: str) -> float:
        self.sent += number
        return float(self.fleet.run("-m", "tests.bench.noop_tasks", task, str(number), *arguments).split()[-1])

    def work_off(self) -> float:
        """Return the executed tasks per second, two at once, without the first tenth, in which workers start."""
        before = len(self.finished())
        first = before + (self.sent - before) // 10
        self.start("worker", 2)
        eventually(lambda: len(self.finished()) >= first, within=600, why="the workers have started")
        begun, spent = len(self.finished()), self.read_spent()
        eventually(lambda: len(self.finished()) >= self.sent, within=600, why="all is done")
        self.cpu_ms.append(1000 * (self.read_spent() - spent) / (self.sent - begun))
        self.fleet.end([name for name in self.fleet.processes if name.startswith("worker")])
        moments = self.finished()[first:]
        return (len(moments) - 1) / (moments[-1] - moments[0])

    def finished(self) -> list[float]:
        with psycopg.connect(self.fleet.env["DATABASE_URL"]) as connection:
            return [float(moment) for (moment,) in connection.execute(FINISHED.format(self.table))]  # type: ignore[arg-type]

    def crash(self, name: str, *options: str) -> Iterator[float | None]:
        """Kill a worker during a task while another worker is idle.

        Each `next()` yields the seconds until the task started again, infinity if it did not, or None if that is not
        known yet.
        """
        marks = self.fleet.folder / name
        self.start(f"victim-{name}", 1, *options)
        self.send("hang", 1, str(marks))
        eventually(marks.exists, why="the task runs")
        self.start(f"other-{name}", 1, *options)
        before = len(self.finished())
        self.send("nothing", 1)
        eventually(lambda: len(self.finished()) > before, why="the other one works")
        for process in [process for process in self.fleet.processes if process.startswith(f"victim-{name}")]:
            self.fleet.kill(process)
        killed = time.time()
        while len(begun := marks.read_text().split()) < 2:
            yield math.inf if time.time() > killed + WAITED else None
        while True:
            yield float(begun[1]) - killed


def django_tasks(data_dir: Path, step: Step) -> list[Row]:
    """Compare enqueued and executed tasks per second, and the time from a crash to the restart, with each default."""
    begin()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        backends = [stack.enter_context(ours(data_dir, folder / "ours"))]
        why = ""
        try:
            python = make_environment(folder / "environment", *PACKAGES)
        except LookupError as error:
            why = f", which cannot be had: {str(error).strip().splitlines()[-1]}"
        else:
            backends += [stack.enter_context(other(folder / name, python, *how)) for name, how in OTHERS.items()]
        step()
        count = len(backends)
        rates = alternate(step, *[one.enqueue for one in backends], *[one.work_off for one in backends])
        restarts = wait([one.crash("begun") for one in backends])
        step()
        at_once = wait([backends[0].crash("begun-again", "--restart-strategy", "IMMEDIATELY")])
        step()
    measured = {"enqueue": rates[:count], "run": rates[count:], "restart": restarts}
    measured["cpu"] = [statistics.median(backend.cpu_ms) for backend in backends]
    measured["restart_at_once"] = [*at_once, *restarts[1:]]
    return [row for name, values in measured.items() for row in make_rows(name, values, why)]


def wait(crashes: list[Iterator[float | None]]) -> list[float]:
    """Return the seconds of each crash."""
    while True:
        seconds = [next(crash) for crash in crashes]
        known = [one for one in seconds if one is not None]
        if len(known) == len(crashes):
            return known
        time.sleep(0.2)


UNITS_AND_GOALS = {"restart": ("s", "≤ 1"), "restart_at_once": ("s", "≤ 1"), "cpu": ("ms", "≤ 3 ms")}


def make_rows(name: str, values: list[float], why: str) -> Iterator[Row]:
    own, *others = values
    for place, other_name in enumerate(OTHERS):
        reference = others[place] if others else math.nan
        never = f", not within {WAITED:g} s" if reference == math.inf else ""
        unit, goal = UNITS_AND_GOALS.get(name, ("/s", "≥ 1"))
        if (name, other_name) == ("run", "django-tasks-db"):
            goal = "≥ 1.5"
        yield Row(f"django_tasks_{name}", own, unit, reference, f"{other_name}{why}{never}", goal)


@contextmanager
def ours(data_dir: Path, folder: Path) -> Iterator[Backend]:
    folder.mkdir()
    env = {"CONTROLPLANE_DATA_DIR": str(data_dir), "DATABASE_URL": os.environ["DATABASE_URL"]}
    with fleet(folder, **env, DJANGO_SETTINGS_MODULE=OURS, CELERY_BROKER_URL="filesystem://") as running:
        for name in SHORT:
            del running.env[name]
        url = running.web()
        running.executor("executor", "--beat")

        def start(name: str, at_once: int, *options: str) -> None:
            options = ("--django", OURS, "--queues", "default", "--concurrency", str(at_once), *options)
            running.start(
                name, "-m", "controlplane.agent", "--url", url, "--name", name, *options,
                CONTROLPLANE_TOKEN=running.token("worker"),
            )  # fmt: skip

        yield Backend(running, "jobs_workerjob", start)


@contextmanager
def other(folder: Path, python: str, backend: str, table: str, command: str) -> Iterator[Backend]:
    folder.mkdir()
    name = f"bench_{folder.name.replace('-', '_')}"
    server(f"create database {name}")
    env = {"DJANGO_SETTINGS_MODULE": "tests.bench.tasks_project", "TASKS_BACKEND": backend}
    try:
        with fleet(folder, **env, DATABASE_URL=beside(name)) as running:
            running.python = python
            running.run("-m", "django", "migrate", "--verbosity", "0")

            def start(name: str, at_once: int, *_: str) -> None:
                for number in range(at_once):
                    running.start(f"{name}-{number}", "-m", "django", command)

            yield Backend(running, table, start)
    finally:
        drop(beside(name))


OTHERS = {
    "django-tasks-db": ("django_tasks_db.DatabaseBackend", "django_tasks_database_dbtaskresult", "db_worker"),
    "django-ox": ("django_ox.backend.OxBackend", "django_ox_oxtask", "ox_worker"),
}
