"""Cost of calls: CPU of the web servers, of PostgreSQL and of the client, and response times."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from tests.bench.database import run


@dataclass
class Cost:
    """Cost of all rounds together. On a busy machine CPU time is more stable than a rate."""

    port: int | None = None
    """Port of the web server, if there is one."""
    units: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    delays: list[float] = field(default_factory=list)
    """Seconds until each response."""

    @contextmanager
    def measured(self) -> Iterator[None]:
        before = read_spent(self.port)
        yield
        for who, seconds in read_spent(self.port).items():
            self.spent[who] = self.spent.get(who, 0.0) + seconds - before[who]

    def as_dict(self, prefix: str = "") -> dict[str, float]:
        """Return microseconds of CPU per unit, in total and by process, and response times in milliseconds."""
        per_unit = {who: 1e6 * seconds / self.units for who, seconds in self.spent.items()}
        shown = {"cpu_us": sum(per_unit.values()), **{f"{who}_us": took for who, took in per_unit.items()}}
        if self.delays:
            shown |= {f"{name}_ms": 1000 * quantile(self.delays, at) for name, at in (("p50", 0.5), ("p99", 0.99))}
        return {f"{prefix}{name}": value for name, value in shown.items()}


def quantile(values: list[float], at: float) -> float:
    return sorted(values)[int(at * (len(values) - 1))]


def read_spent(port: int | None) -> dict[str, float]:
    """Return the CPU seconds of the web server on that port, of PostgreSQL and of this process."""
    web = [process for process in psutil.process_iter(["cmdline"]) if is_web_server(process, port)]
    postmaster = psutil.Process(run("select pg_backend_pid()")).parent()
    assert postmaster is not None
    spent = {"web": sum(map(seconds_of_family, web)), "postgresql": seconds_of_family(postmaster)}
    return {**spent, "client": time.process_time()}


def is_web_server(process: psutil.Process, port: int | None) -> bool:
    """Return True for the main process of the web server."""
    words = process.info["cmdline"] or []
    with suppress(psutil.Error):
        parent = process.parent()
        return "granian" in words and str(port) in words and parent is not None and parent.cmdline() != words
    return False


def memory_of_family(process: psutil.Process) -> float:
    """Return the bytes of a process and its children. Shared memory is divided among the processes that share it."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total


def seconds_of_family(process: psutil.Process) -> float:
    """Return the CPU seconds of a process, its children, and their ended children."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
