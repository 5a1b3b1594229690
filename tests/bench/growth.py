"""Growth of page and call times with the number of servers and jobs, compared with the smallest size."""

import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from django.contrib.auth.models import User
from django.test import Client

from jobs.models import WorkerJob
from jobs.services import claiming, seeding
from jobs.services.liveness_check import check_liveness
from liveness.services import tokens
from tests.bench.database import add_jobs, begin, begin_observing
from tests.bench.rows import Row, Step

SIZES = [(1_000, 10_000), (10_000, 100_000), (10_000, 1_000_000)]
"""Numbers of servers and jobs."""
LARGE = [(100_000, 1_000_000), (100_000, 5_000_000)]
"""Further sizes with BENCH_LARGE=1. They take half an hour and 20 GB."""
PAGES = {"overview": "", "servers": "servers/", "jobs": "jobs/", "job": "jobs/{job}/", "activity": "activity/"}
CLAIMS, REQUESTS, CHECKS = 50, 10, 3


def growth(data_dir: Path, step: Step) -> Iterator[Row]:
    """Yield median milliseconds for each size."""
    first: dict[str, float] = {}
    logging.disable(logging.WARNING)
    for servers, jobs in SIZES + (LARGE if os.environ.get("BENCH_LARGE") else []):
        ((_, token),) = begin(1)
        seeding.seed_database(servers, jobs, force=True)
        seeding.vacuum_tables()
        step()
        for name, value in measured(token).items():
            reference = first.setdefault(name, value)
            column = f"growth {name}, {servers:,} servers, {jobs:,} jobs"
            yield Row(column, value, "ms", reference, f"{SIZES[0][0]:,} servers, {SIZES[0][1]:,} jobs", "")
        step()
    logging.disable(logging.NOTSET)


def measured(token: str) -> dict[str, float]:
    reader, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(reader)
    job = WorkerJob.objects.filter(state="COMPLETED").latest("id").pk
    addresses = {name: f"/admin/instance/{page.format(job=job)}" for name, page in PAGES.items()}
    took = {f"page of {name}": median(REQUESTS, get(client, address)) for name, address in addresses.items()}
    add_jobs(CLAIMS + 1, ["script"], priority=9)
    server = tokens.read_server_token(token)
    took["claim"] = median(CLAIMS, lambda: claiming.claim_jobs(server, 1))
    begin_observing()
    return {**took, "check, none due": median(CHECKS, check_liveness)}


def get(client: Client, address: str) -> Callable[[], object]:
    def ask() -> None:
        assert client.get(address).status_code == 200

    return ask


def median(times: int, what: Callable[[], object]) -> float:
    """Return the median milliseconds of a call. The first call is not counted."""
    took = []
    for _ in range(times + 1):
        began = time.perf_counter()
        what()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took[1:])
