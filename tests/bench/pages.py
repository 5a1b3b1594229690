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
LIVE_PAGES = ["", "servers/", "jobs/", "queues/", "executions/", "alerts/", "activity/"]
CHANGING_PAGES = ["", "servers/", "queues/"]
"""Pages on which heartbeats and rates change something all the time."""
POLL = {"HX-Request": "true", "Accept-Encoding": "gzip"}


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
    client, addresses = fill(servers, jobs)
    rows = []
    for page, address in addresses.items():
        value, reference = alternate(step, p95(client, f"/admin/instance/{address}"), p95(client, REFERENCE))
        bench = f"{name} {page.format(server='ID', job='ID') or 'overview'}"
        rows.append(Row(bench, value, "ms", reference, "a page of Django's admin", goal))
    return rows


def fill(servers: int, jobs: int) -> tuple[Client, dict[str, str]]:
    """Fill the database. Return a client with a session, and the address of each page."""
    collect_seldom()
    begin()
    seeding.seed_database(servers, jobs, force=True)
    seeding.vacuum_tables()
    reader, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(reader)
    moved: Attempt = Attempt.objects.filter(state="RESUBMITTED").earliest("id")
    keep_what_is_imported()
    logging.disable(logging.INFO)  # a line per request; a web server under load writes it in another thread
    return client, {page: page.format(server=moved.server_id, job=moved.job_id) for page in PAGES}


def polls(data_dir: Path, step: Step) -> list[Row]:
    """Measure what an open page asks for again and again, with 1,000 servers and 100,000 jobs.

    A poll is measured that finds nothing new, and one whose answer has changed. `kb` is the compressed size of that.
    """
    client, addresses = fill(1_000, 100_000)
    rows = []
    for page in LIVE_PAGES:
        address = f"/admin/instance/{addresses[page]}"
        changed = client.get(address, headers=POLL)
        unchanged = {**POLL, "If-None-Match": changed.headers["ETag"]}
        more = {"kb": len(changed.content) / 1000}
        name, goal = page.format(job="ID") or "overview", "≤ 8 kB" if page == "jobs/" else ""
        measured = [p95(client, address, {"Accept-Encoding": "gzip"}), p95(client, address, POLL)]
        if page not in CHANGING_PAGES:
            measured.append(p95(client, address, unchanged, expected=204))
        whole, changed_ms, *quiet = alternate(step, *measured)
        rows.append(Row(f"polls {name}", changed_ms, "ms", whole, "the whole page", goal, more))
        rows += [Row(f"polls {name} unchanged", ms, "ms", whole, "the whole page", "") for ms in quiet]
    return rows


def p95(
    client: Client, address: str, headers: dict[str, str] | None = None, expected: int = 200
) -> Callable[[], float]:
    def measure() -> float:
        took = []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            status = client.get(address, headers=headers).status_code
            collect_after_page()
            assert status in (200, 204), status
            if status == expected:
                took.append(1000 * (time.perf_counter() - began))
        return quantile(took, 0.95)

    return measure
