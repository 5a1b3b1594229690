"""Comparison with PgQueuer and procrastinate: same PostgreSQL, separate databases, the same number of clients.

They are installed for this run, in a separate environment. Neither uses HTTP, so ours is also measured without it: the
same services, called by as many clients in separate processes.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from jobs.models import WorkerJob
from liveness.services import tokens
from tests.bench import web
from tests.bench.cost import Cost
from tests.bench.database import begin
from tests.bench.load import Talk, drive, request
from tests.bench.over_http import APART, API, JOB, TOGETHER, work
from tests.bench.peer_work import LIST
from tests.bench.rows import ROUNDS, Row, Step
from tests.bench.wal import Writes, written
from tests.support.processes import ROOT, beside, drop, server
from tests.support.pythons import make_environment

PACKAGES = ("pgqueuer", "asyncpg", "uvloop", "procrastinate", "psycopg[binary]")
WORK = {"submit": (LIST, 2), "drain_100": (100, 2), "drain_10": (10, 8)}
"""Jobs per call, and number of clients."""


class Party:
    """System that runs jobs, with its figures so far."""

    def __init__(self, name: str, python: str, url: str, number: int) -> None:
        self.name, self.python, self.url, self.number = name, python, url, number
        self.rates: dict[str, list[float]] = {what: [] for what in WORK}
        self.costs = {what: Cost() for what in WORK}
        self.writes = Writes()

    def measure(self, what: str, data_dir: Path) -> None:
        """Run one round of this work."""
        self.empty()
        counted = self.writes if what == "drain_100" else Writes()
        if what != "submit":
            with written(counted, data_dir):
                self.do("submit", *WORK["submit"], Cost())
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")
        cost = self.costs[what]
        cost.units += self.number
        with written(counted, data_dir):
            took = self.do(what, *WORK[what], cost)
        counted.units += self.number
        self.rates[what].append(self.number / took)

    def empty(self) -> None:
        """Start with an empty database."""
        drop(self.url)
        server(f"create database {self.url.rpartition('/')[2]}")
        self.together([["install"]], Cost())

    def do(self, what: str, size: int, clients: int, cost: Cost) -> float:
        """Return the seconds that all jobs took, and add their cost to `cost`."""
        number = self.number // clients if what == "submit" else size
        return self.together([[what, str(number)]] * clients, cost)

    def together(self, told: list[list[str]], cost: Cost) -> float:
        """Start clients with these command lines at once."""
        env = {**os.environ, "DATABASE_URL": self.url, "DATABASE_POOL_SIZE": "1"}
        command = [self.python, "-m", "tests.bench.peer_work", self.name]
        with ExitStack() as stack:
            clients = [stack.enter_context(client([*command, *words], env)) for words in told]
            for one in clients:
                assert one.stdout.readline() == "ready\n", one.args
            before = cost.spent.get("client", 0.0)
            with cost.measured():
                began = time.perf_counter()
                for one in clients:
                    one.stdin.write("\n")
                    one.stdin.flush()
                spent = [json.loads(one.stdout.readline()) for one in clients]
                took = time.perf_counter() - began
            cost.spent["client"] = before + sum(spent)
        return took


@contextmanager
def client(command: list[str], env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(command, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


class InDatabase(Party):
    """Services of ours without HTTP."""

    def __init__(self) -> None:
        super().__init__("ours", sys.executable, os.environ["DATABASE_URL"], 10_000)

    def empty(self) -> None:
        self.servers = begin(max(clients for _, clients in WORK.values()))

    def do(self, what: str, size: int, clients: int, cost: Cost) -> float:
        if what == "submit":
            return super().do(what, size, clients, cost)
        took = self.together([[what, str(size), str(one.pk)] for one, _ in self.servers[:clients]], cost)
        assert WorkerJob.objects.filter(state="COMPLETED").count() == self.number
        return took


class OverHttp(InDatabase):
    """API of ours over HTTP, with workers that report these events in each call."""

    def __init__(self, port: int, calls: tuple[tuple[str, ...], ...]) -> None:
        super().__init__()
        self.port, self.calls = port, calls
        self.costs = {what: Cost(port) for what in WORK}

    def do(self, what: str, size: int, clients: int, cost: Cost) -> float:
        if what == "submit":
            talks = [self.submits(f"client {nth}", self.number // clients) for nth in range(clients)]
        else:
            talks = [work(one.pk, token, size, self.calls) for one, token in self.servers[:clients]]
        with cost.measured():
            took = drive(self.port, talks)
        state = "PENDING" if what == "submit" else "COMPLETED"
        assert WorkerJob.objects.filter(state=state).count() == self.number
        return took

    def submits(self, caller: str, number: int) -> Talk:
        body = request(f"{API}/jobs", tokens.create_token(caller, "client"), [JOB] * LIST)
        for _ in range(number // LIST):
            yield body


def peers(data_dir: Path, step: Step) -> list[Row]:
    """Measure submission in lists, draining in hundreds and in tens, and the writes per job."""
    begin()
    with ExitStack() as stack:
        port = stack.enter_context(web.control_plane(data_dir))
        own = {
            "over HTTP": OverHttp(port, APART),
            "over HTTP, start and end told at once": OverHttp(port, TOGETHER),
            "in the database alone": InDatabase(),
        }
        others, why = {}, ""
        folder = Path(stack.enter_context(TemporaryDirectory()))
        try:
            python = make_environment(folder / "environment", *PACKAGES)
        except LookupError as error:
            reason = str(error).strip().splitlines()[-1]
            why = f", not measured: {', '.join(PACKAGES)} must be where pip finds them ({reason})"
        else:
            others = {
                "PgQueuer": Party("pgqueuer", python, stack.enter_context(database("bench_pgqueuer")), 10_000),
                "procrastinate": Party(
                    "procrastinate", python, stack.enter_context(database("bench_procrastinate")), 2000
                ),
            }
        for what in WORK:
            for _ in range(ROUNDS):
                for party in (*own.values(), *others.values()):
                    party.measure(what, data_dir)
                    step()
    rows = [row for what in WORK for row in compare(what, own, others, why)]
    return [*rows, *compare_writes(own["in the database alone"], others, why)]


def compare(what: str, own: Mapping[str, Party], others: Mapping[str, Party], why: str) -> Iterator[Row]:
    for how, ours in own.items():
        value, cost = statistics.median(ours.rates[what]), ours.costs[what].as_dict()
        if not others:
            yield Row(f"peers_{what}", value, "jobs/s", math.nan, f"PgQueuer, procrastinate{why}; ours {how}", "", cost)
        for name, theirs in others.items():
            other = theirs.costs[what].as_dict("reference_")
            more = {**cost, **other, "cpu_ratio": cost["cpu_us"] / other["reference_cpu_us"]}
            reference = statistics.median(theirs.rates[what])
            yield Row(f"peers_{what}", value, "jobs/s", reference, f"{name}; ours {how}", "CPU ≤ 1", more)


def compare_writes(ours: Party, others: Mapping[str, Party], why: str) -> Iterator[Row]:
    """Compare the writes of a job from its submission to its end."""
    references = {name: theirs.writes.as_dict() for name, theirs in others.items()} or {f"PgQueuer{why}": {}}
    for name, reference in references.items():
        for what, value in ours.writes.as_dict().items():
            unit = "" if what == "hot" else "/job"
            yield Row(f"peers_writes_{what}", value, unit, reference.get(what, math.nan), name, "≤ 1")


@contextmanager
def database(name: str) -> Iterator[str]:
    server(f"create database {name}")
    try:
        yield beside(name)
    finally:
        drop(beside(name))
