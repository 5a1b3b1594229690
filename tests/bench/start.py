"""Time from the call that submits a job until its code runs, on an idle agent that has run jobs before.

It is measured alone, and while a thousand jobs wait for workers with other tags.
"""

import os
import time
from pathlib import Path
from typing import Any

from jobs.models import WorkerJob
from tests.bench import web
from tests.bench.cost import quantile
from tests.bench.database import add_jobs, begin
from tests.bench.rows import Row, Step
from tests.support.processes import Fleet, eventually

MODULE = "tells_the_time"
JOB = {"action": {"type": "callable", "path": f"{MODULE}:now"}}
JOBS, OTHERS = 100, 1000


def start(data_dir: Path, step: Step) -> list[Row]:
    begin()
    (data_dir / f"{MODULE}.py").write_text("import time\n\n\ndef now(payload):\n    return time.time()\n")
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(data_dir)])
    with web.processes(data_dir, PYTHONPATH=path) as fleet:
        url, client = f"{fleet.web()}/api/v1/jobs", fleet.token("client")
        fleet.agent("worker", url.removesuffix("/api/v1/jobs"), "--poll", "60")
        for _ in range(10):  # from the second call on a process to fork from is worth its cost
            submit(fleet, url, client)
        alone, answers = delays(fleet, url, client)
        step()
        add_jobs(OTHERS, ["of another worker"])
        beside, _ = delays(fleet, url, client)
        step()
        assert WorkerJob.objects.filter(state="PENDING").count() == OTHERS
    goals = (("p50", 0.5, "≤ 50 ms"), ("p99", 0.99, "≤ 250 ms"))
    return [
        Row(f"start_{name}{what}", 1000 * quantile(took, at), "ms", 1000 * quantile(than, at), against, goal)
        for what, took, than, against in (
            ("", alone, answers, "the answer to the submission"),
            (f", {OTHERS} others wait", beside, alone, "no other waits"),
        )
        for name, at, goal in goals
    ]


def delays(fleet: Fleet, url: str, client: str) -> tuple[list[float], list[float]]:
    """Return the seconds until the code of each job ran, and until its submission was answered."""
    return tuple(map(list, zip(*(submit(fleet, url, client) for _ in range(JOBS)), strict=True)))


def submit(fleet: Fleet, url: str, client: str) -> tuple[float, float]:
    began = time.time()
    job = fleet.call("POST", url, client, JOB)
    answered = time.time()

    def ended() -> Any:
        return fleet.call("GET", f"{url}/{job['id']}", client)["output"]

    return eventually(ended) - began, answered - began
