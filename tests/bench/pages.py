"""Response times of the Instance pages with many servers and jobs."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from django.contrib.auth.models import User
from django.test import Client

from controlplane.core.garbage_collection import collect_after_page, collect_seldom, keep_what_is_imported
from jobs.models import Attempt
from jobs.services import seeding
from tests.bench.cost import quantile
from tests.bench.database import begin
from tests.bench.rows import Row, Step, alternate

REQUESTS = 60
REFERENCE = "/admin/password_change/"
"""Page of Django's admin without our data: session, user, and a form in the same frame."""
PAGES = ["", "servers/", "servers/{server}/", "jobs/", "jobs/{job}/", "executions/", "triggers/", "activity/",
         "quarantine/", "recovery/", "alerts/", "jobs/{job}/log/", "trends/", "queues/", "?window=7d"]  # fmt: skip


def pages(data_dir: Path, step: Step) -> list[Row]:
    """Measure with 1,000 servers and 100,000 jobs."""
    return measured("pages", 1_000, 100_000, "≤ 50 ms", step)


def pages_at_scale(data_dir: Path, step: Step) -> list[Row]:
    """Measure with 10,000 servers and 1,000,000 jobs."""
    return measured("pages_at_scale", 10_000, 1_000_000, "≤ 150 ms", step)


def measured(name: str, servers: int, jobs: int, goal: str, step: Step) -> list[Row]:
    """Measure in this process, through all of Django, with garbage collection as in a web server.

    It measures the page that a reader opens, not the smaller part that a poll requests.
    """
    collect_seldom()
    begin()
    seeding.seed_database(servers, jobs, force=True)
    seeding.vacuum_tables()
    reader, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(reader)
    moved: Attempt = Attempt.objects.filter(state="RESUBMITTED").earliest("id")
    addresses = {page: page.format(server=moved.server_id, job=moved.job_id) for page in PAGES}
    keep_what_is_imported()
    rows = []
    logging.disable(logging.INFO)  # a line per request; a web server under load writes it in another thread
    for page, address in addresses.items():
        value, reference = alternate(step, p95(client, f"/admin/instance/{address}"), p95(client, REFERENCE))
        bench = f"{name} {page.format(server='ID', job='ID') or 'overview'}"
        rows.append(Row(bench, value, "ms", reference, "a page of Django's admin", goal))
    logging.disable(logging.NOTSET)
    return rows


def p95(client: Client, address: str) -> Callable[[], float]:
    def measure() -> float:
        took = []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            status = client.get(address).status_code
            collect_after_page()
            took.append(1000 * (time.perf_counter() - began))
            assert status == 200, status
        return quantile(took, 0.95)

    return measure
