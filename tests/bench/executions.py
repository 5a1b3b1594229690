"""Cost of a large execution: its steps are added in parts, they end, and its page is shown."""

import logging
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from controlplane.core.json_bodies import read_json, write_json
from jobs.models import Execution
from jobs.services import claiming, open_executions, reporting
from jobs.services.executions import submit_execution
from jobs.services.reports import Report, ReportEvent
from liveness.models import ApiToken
from liveness.services import tokens
from tests.bench.database import begin, settle_down
from tests.bench.rows import Row, Step

PARTS, STEPS_OF_PART = 20, 500
REQUESTS = 20
ACTION = {"type": "script", "runner": "local", "command": "true"}


def executions(data_dir: Path, step: Step) -> Iterator[Row]:
    """Measure 10,000 steps in 20 parts. Each step depends on one of the part before it."""
    logging.disable(logging.WARNING)
    ((_, token),) = begin(1)
    server = tokens.read_server_token(token)
    owner = ApiToken.objects.get(name="bench client")
    run, _ = submit_execution(owner, {"name": "bench", "steps": [], "sealed": False})
    added = []
    for part in range(PARTS):
        steps = read_json(write_json(list(build_part(part))))
        added.append(milliseconds_of(lambda steps=steps: open_executions.add_steps(run, steps, owner.pk)))
        step()
    settle_down()
    yield Row(
        "executions, adding a step", median_of(added[-5:]), "ms", median_of(added[:5]), "the first 2,500 steps", "≤ 1.5"
    )
    open_executions.seal_execution(run, "client:bench")
    ended = []
    for _ in range(PARTS):
        claimed = claiming.claim_jobs(server, STEPS_OF_PART)[0]
        assert len(claimed) == STEPS_OF_PART, len(claimed)
        reports = [
            Report(attempt.id, event) for event in (ReportEvent.STARTED, ReportEvent.COMPLETED) for attempt in claimed
        ]
        ended.append(milliseconds_of(lambda reports=reports: reporting.record_reports(server, reports)))
        step()
    assert Execution.objects.get(pk=run).state == "COMPLETED"
    # The last part has no dependents.
    yield Row(
        "executions, end of a step",
        median_of(ended[-6:-1]),
        "ms",
        median_of(ended[:5]),
        "the first 2,500 steps",
        "≤ 1.5",
    )
    yield measure_page(f"/admin/instance/executions/{run}/")
    logging.disable(logging.NOTSET)


def build_part(part: int) -> Iterator[dict[str, Any]]:
    for number in range(STEPS_OF_PART):
        needs = [f"{part - 1}-{number}"] if part else []
        yield {"key": f"{part}-{number}", "action": ACTION, "depends_on": needs, "payload": {"number": number}}


def milliseconds_of(call: Any) -> float:
    """Return the milliseconds of a call for each step of a part."""
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began) / STEPS_OF_PART


def median_of(took: list[float]) -> float:
    return statistics.median(took)


def measure_page(address: str) -> Row:
    """Measure the page of the execution, and the list of all executions beside it."""
    reader, _ = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(reader)
    took: dict[str, list[float]] = {address: [], "/admin/instance/executions/": []}
    for _ in range(REQUESTS + 1):
        for page, times in took.items():
            began = time.perf_counter()
            assert client.get(page).status_code == 200
            times.append(1000 * (time.perf_counter() - began))
    value, reference = (statistics.median(times[1:]) for times in took.values())
    return Row("executions, page of 10,000 steps", value, "ms", reference, "the list of executions", "≤ 150 ms")
