"""Claims while an old snapshot is open, as a dump holds one: PostgreSQL keeps the index entries of all claimed jobs."""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import psycopg

from controlplane.core.database import connection
from jobs.services import claiming, hints
from jobs.services.claim_floors import KNOWN_FOR
from liveness.services import tokens
from tests.bench.database import add_jobs, begin, run, settle_down
from tests.bench.rows import Row, Step

HELD_FOR = 100_000
"""Jobs that are claimed while the snapshot is open, before the measurement."""
CLAIM, AT_ONCE, CLAIMS, SLOW_CLAIMS = 100, 1_000, 300, 12
ROUNDS = int(os.environ.get("SNAPSHOT_ROUNDS", "2"))


class Figures(NamedTuple):
    """Milliseconds of a claim."""

    median: float
    p99: float
    slow: float
    """Median of a claimer that reads the queue from its beginning each time."""


def snapshot(data_dir: Path, step: Step) -> list[Row]:
    """Claim a hundred jobs at once, with and without a snapshot that was open for the last 100,000 jobs."""
    hints.announcer.enabled = True  # like a process that serves
    rounds = [(measure(step, holds=True), measure(step, holds=False)) for _ in range(ROUNDS)]
    hints.announcer.enabled = False
    held, free = (Figures(*map(statistics.median, zip(*figures, strict=True))) for figures in zip(*rounds, strict=True))
    against = "the same without a snapshot"
    return [
        Row("snapshot", held.median, "ms", free.median, against, "≤ 1.2"),
        Row("snapshot, p99", held.p99, "ms", free.p99, against, ""),
        Row("snapshot, one slow claimer", held.slow, "ms", free.slow, against, ""),
    ]


def measure(step: Step, *, holds: bool) -> Figures:
    ((_, token),) = begin(1)
    add_jobs(HELD_FOR + CLAIM * (CLAIMS + SLOW_CLAIMS), ["script"])
    settle_down()
    server = tokens.read_server_token(token)

    def claim(number: int) -> float:
        began = time.perf_counter()
        assert len(claiming.claim_jobs(server, number)[0]) == number
        return 1000 * (time.perf_counter() - began)

    with open_snapshot() if holds else nullcontext():
        for _ in range(HELD_FOR // AT_ONCE):
            claim(AT_ONCE)
        step()
        took = [claim(CLAIM) for _ in range(CLAIMS)]
        slow = []
        for _ in range(SLOW_CLAIMS):
            time.sleep(KNOWN_FOR + 0.1)
            slow.append(claim(CLAIM))
    step()
    assert run("select count(*) from jobs_workerjob where state = 'PENDING'") == 0
    return Figures(statistics.median(took), statistics.quantiles(took, n=100)[98], statistics.median(slow))


@contextmanager
def open_snapshot() -> Iterator[None]:
    """Hold a snapshot in a session of its own."""
    options = {name: value for name, value in connection.get_connection_params().items() if name != "pool"}
    with psycopg.connect(**{**options, "application_name": "bench snapshot", "cursor_factory": None}) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.execute("set idle_in_transaction_session_timeout = 0")
        session.execute("select count(*) from jobs_attempt")
        yield
        session.rollback()
