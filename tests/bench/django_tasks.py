"""Django tasks on our backend, django-tasks-db and django-ox: same PostgreSQL, same tasks, two at once, real workers.

The other two are installed for this run, in a separate environment, with the same Django. Celery on Redis with its
defaults runs the same task in the same rounds.
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

from tests.bench.celery_tasks import CeleryBackend, celery_on_redis
from tests.bench.cost import memory_of_family, seconds_of_family
from tests.bench.database import begin, run
from tests.bench.rows import Row, Step, alternate
from tests.support.processes import SHORT, Fleet, beside, drop, eventually, fleet, server
from tests.support.pythons import make_environment

TASKS = 1000
NAPS, NAP, SLOTS = 3200, 0.05, 16
"""Number of tasks that sleep, the seconds they sleep, and how many of them run at once."""
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
    slot_mb: float = math.nan
    """Megabytes of memory of a slot, with shared memory divided among the processes that share it."""

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
        with self.workers("worker", 2) as (begun, spent):
            self.cpu_ms.append(1000 * (self.read_spent() - spent) / (self.sent - begun))
        return self.rate(begun)

    def nap(self) -> float:
        """Return the executed tasks per second if each sleeps and many run at once. Record the memory of a slot."""
        self.send("nap", NAPS, str(NAP))
        with self.workers("napper", SLOTS) as (begun, _):
            workers = [process for name, process in self.fleet.processes.items() if name.startswith("napper")]
            self.slot_mb = sum(memory_of_family(psutil.Process(one.pid)) for one in workers) / SLOTS / 1e6
        return self.rate(begun)

    @contextmanager
    def workers(self, name: str, slots: int) -> Iterator[tuple[int, float]]:
        """Start workers, wait until all is done, and end them after the block.

        Yield how many tasks had finished when a tenth was done, and the CPU seconds spent by then.
        """
        before = len(self.finished())
        first = before + (self.sent - before) // 10
        self.start(name, slots)
        eventually(lambda: len(self.finished()) >= first, within=600, why="the workers have started")
        begun, spent = len(self.finished()), self.read_spent()
        eventually(lambda: len(self.finished()) >= self.sent, within=600, why="all is done")
        yield begun, spent
        self.fleet.end([one for one in self.fleet.processes if one.startswith(name)])

    def rate(self, first: int) -> float:
        """Return the tasks per second that finished after the `first` ones."""
        moments = self.finished()[first:]
        return (len(moments) - 1) / (moments[-1] - moments[0])

    def finished(self) -> list[float]:
        with psycopg.connect(self.fleet.env["DATABASE_URL"]) as connection:
            return [float(moment) for (moment,) in connection.execute(FINISHED.format(self.table))]

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
        reference = stack.enter_context(celery_on_redis(folder / "celery", TASKS))
        everyone: list[Backend | CeleryBackend] = [*backends, reference]
        count = len(everyone)
        rates = alternate(step, *[one.enqueue for one in everyone], *[one.work_off for one in everyone])
        naps = alternate(step, *[one.nap for one in backends], rounds=1)
        restarts = wait([one.crash("begun") for one in backends])
        step()
        at_once = wait([backends[0].crash("begun-again", "--restart-strategy", "IMMEDIATELY")])
        step()
    measured = {"enqueue": rates[:count], "run": rates[count:], "restart": restarts}
    measured["cpu"] = [statistics.median(backend.cpu_ms) for backend in everyone]
    measured["memory"] = [backend.slot_mb for backend in backends]
    measured["restart_at_once"] = [*at_once, *restarts[1:]]
    rows = [row for name, values in measured.items() for row in make_rows(name, values, why)]
    ideal = f"{SLOTS} slots with tasks of {1000 * NAP:.0f} ms each"
    return [*rows, Row("django_tasks_naps", naps[0], "/s", SLOTS / NAP, ideal, "≥ 0.95")]


def wait(crashes: list[Iterator[float | None]]) -> list[float]:
    """Return the seconds of each crash."""
    while True:
        seconds = [next(crash) for crash in crashes]
        known = [one for one in seconds if one is not None]
        if len(known) == len(crashes):
            return known
        time.sleep(0.2)


UNITS_AND_GOALS = {
    "restart": ("s", "≤ 1"), "restart_at_once": ("s", "≤ 1"), "cpu": ("ms", "≤ 3 ms"), "memory": ("MB", "shown"),
}  # fmt: skip


def make_rows(name: str, values: list[float], why: str) -> Iterator[Row]:
    own, *others = values
    names = [*(OTHERS if len(others) > 1 or not why else []), *([CELERY] if name in WITH_CELERY else [])]
    for place, other_name in enumerate(names):
        reference = others[place] if others else math.nan
        never = f", not within {WAITED:g} s" if reference == math.inf else ""
        unit, goal = UNITS_AND_GOALS.get(name, ("/s", "≥ 1"))
        if (name, other_name) == ("run", "django-tasks-db"):
            goal = "≥ 1.5"
        yield Row(f"django_tasks_{name}", own, unit, reference, f"{other_name}{why}{never}", goal)


CELERY = "Celery on Redis"
WITH_CELERY = ("enqueue", "run", "cpu")


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
