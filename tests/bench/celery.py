"""Celery with and without protection: the time until a killed worker's task runs again, and the cost per task."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.bench.rows import Row, Step
from tests.support.celery_fleet import CeleryFleet, celery_fleet
from tests.support.celery_plane import CeleryPlane
from tests.support.processes import eventually
from tests.support.services import Redis

PLAIN_TIMEOUT = 3670.0  # seconds; measured once in full with Celery's defaults
SHORT_TIMEOUT = 20  # seconds, for plain Celery in the same run; with this value longer tasks run twice
KILLS, TASKS = 3, 6000


def celery(data_dir: Path, step: Step) -> list[Row]:
    """Compare restarts with plain Celery and a short visibility timeout, and CPU and Redis commands per task."""
    protected = sorted(_restart(step, protected=True) for _ in range(KILLS))[KILLS // 2]
    plain = _restart(step, protected=False)
    cost = {is_protected: _cost(step, protected=is_protected) for is_protected in (False, True)}
    against = f"plain Celery with a visibility timeout of {SHORT_TIMEOUT} s; with its default {PLAIN_TIMEOUT:,.0f} s"
    rows = [Row("celery_restart", protected, "s", plain, against, "≤ 0.2")]
    for place, unit in enumerate(("ms wall", "ms CPU", "commands")):
        rows.append(
            Row(f"celery_{unit.split()[-1].lower()}", cost[True][place], unit, cost[False][place], "plain", "≈ 1")
        )
    return rows


@contextmanager
def _fleet(*, protected: bool, visibility: int | None = None) -> Iterator[tuple[CeleryFleet, CeleryPlane]]:
    folder = Path(tempfile.mkdtemp(prefix="controlplane-bench-celery-"))
    plane = CeleryPlane(timeout=45.0)
    environment = {"PROTECTED": str(int(protected)), "ACKS_LATE": "1", "VISIBILITY": str(visibility or "")}
    try:
        with Redis(folder) as broker, celery_fleet(folder, broker.url, plane.url, **environment) as fleet:
            yield fleet, plane
    finally:
        plane.close()


def _restart(step: Step, *, protected: bool) -> float:
    """Return the seconds from the kill of a worker's group to the next start of its task. Another worker is idle."""
    with _fleet(protected=protected, visibility=None if protected else SHORT_TIMEOUT) as (fleet, plane):
        fleet.worker("victim")
        fleet.ready("victim")
        eventually(lambda: plane.count("heartbeat") > 1 or not protected, why="its heart beats")
        fleet.send("work", "running", 600)
        fleet.begun("running")
        fleet.worker("other")
        fleet.ready("other")
        killed_at = time.time()
        fleet.kill("victim")
        again = fleet.begun("running", 2, within=SHORT_TIMEOUT * 6)
        step()
        return again.at - killed_at


def _cost(step: Step, *, protected: bool) -> tuple[float, float, float]:
    """Return milliseconds, milliseconds of CPU and Redis commands of a task that does nothing, including publishing."""
    with _fleet(protected=protected) as (fleet, plane):
        fleet.env["BACKEND"] = ""
        fleet.worker("one", "--loglevel", "warning", concurrency=2, PREFETCH="16")
        eventually(lambda: fleet.redis.exists("_kombu.binding.orders"), why="it consumes")
        eventually(lambda: plane.count("heartbeat") > 1 or not protected, why="its heart beats")
        process = psutil.Process(fleet.processes["one"].pid)
        family = [process, *process.children(recursive=True)]

        def spent():
            return sum(sum(one.cpu_times()[:2]) for one in family)

        def commands():
            return fleet.redis.info("stats")["total_commands_processed"]

        cpu, before, began = spent(), commands(), time.monotonic()
        with fleet.app.producer_pool.acquire() as producer:
            for _ in range(TASKS):
                fleet.app.send_task("tests.support.celery_app.nothing", producer=producer, ignore_result=True)
        asked = 0

        def is_over() -> bool:
            nonlocal asked
            asked += 3
            held = fleet.unacked() if protected else fleet.redis.hlen("unacked")
            return not fleet.redis.llen("orders") and not held

        eventually(is_over, within=120, why="all tasks are done")
        step()
        wall = time.monotonic() - began
        return 1000 * wall / TASKS, 1000 * (spent() - cpu) / TASKS, (commands() - before - asked) / TASKS
