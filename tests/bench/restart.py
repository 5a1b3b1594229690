"""Time from the kill of a worker until another worker has started its job, on real processes with the shortest
timings."""

import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import psutil

from jobs.models import Attempt
from liveness.models import Server, ServerEvent
from tests.bench import web
from tests.bench.database import begin
from tests.bench.rows import Row, Step, alternate
from tests.support.processes import SHORT, Fleet, eventually

INTERVAL, HEARTBEAT, TIMEOUT = 0.1, 0.1, 0.4
TIGHT = {
    "LIVENESS_INTERVAL": str(INTERVAL),
    "LIVENESS_HEARTBEAT_INTERVAL": str(HEARTBEAT),
    "LIVENESS_TIMEOUT": str(TIMEOUT),
    "LIVENESS_INITIAL_DELAY": "0",
    "LIVENESS_TERMINATION_GRACE_PERIOD": "0",
    "LIVENESS_WORKER_TASK_RESTART_STRATEGY": "IMMEDIATELY",
}


KILLS = int(os.environ.get("BENCH_KILLS", "100"))
"""Kills of each kind with the default settings."""
FENCE = 336.0 - 3.0
"""Default `fence_after_seconds`, less the longest time since the last heartbeat before the kill."""
DEFAULT_WAIT = 345.0
"""Default timeout and grace period in seconds: what a silent worker's jobs wait for."""


def restart(data_dir: Path, step: Step) -> list[Row]:
    """Measure from the kill of an agent to the start of the second attempt: silence with the shortest timings, and
    proved deaths with the default settings."""
    return [restart_after_silence(data_dir, step), *restart_after_proof(data_dir, step)]


def restart_after_silence(data_dir: Path, step: Step) -> Row:
    """Measure with the shortest timings and without proofs. No living server may be disconnected."""
    begin()
    with web.processes(data_dir, CELERY_BROKER_URL="filesystem://", **TIGHT) as fleet:
        url = fleet.web()
        fleet.executor("executor", "--beat")
        client = fleet.token("client")
        fleet.agent("worker-0", url)
        rounds = iter(range(1, 100))
        (value,) = alternate(step, lambda: crash(fleet, url, client, next(rounds)), rounds=5)
        lost = ServerEvent.objects.filter(to_state="DISCONNECTED").values_list("server_name", flat=True)
        assert sorted(lost) == [f"worker-{number}" for number in range(5)], list(lost)
    limit = TIMEOUT + 2 * INTERVAL
    return Row("restart", value, "s", limit, f"timeout {TIMEOUT} s + 2 checks of {INTERVAL} s", "≤ 1, and < 1 s")


def restart_after_proof(data_dir: Path, step: Step) -> list[Row]:
    """Measure with the default settings, 99th of a hundred: kills of the agent alone, and of all its processes."""
    begin()
    with web.processes(data_dir, CELERY_BROKER_URL="filesystem://") as fleet:
        for name in [*TIGHT, *web.CALM, *SHORT]:
            fleet.env.pop(name, None)
        url = fleet.web()
        fleet.executor("executor", "--beat")
        rounds = range(KILLS)
        alone = [time_proved_death(fleet, url, f"alone-{number}", step, everything=False) for number in rounds]
        group = [time_proved_death(fleet, url, f"group-{number}", step, everything=True) for number in rounds]
        silent = time_silence(fleet, url, step)
    against = "default timeout + grace period"
    return [
        Row("restart_silent", statistics.median(silent), "s", DEFAULT_WAIT, against, "≤ 1.1", {"least": min(silent)}),
        Row("restart_killed", percentile(alone), "s", DEFAULT_WAIT, against, "p99 ≤ 1 s", median_of(alone)),
        Row("restart_all_killed", percentile(group), "s", DEFAULT_WAIT, against, "p99 ≤ 1 s", median_of(group)),
    ]


def time_silence(fleet: Fleet, url: str, step: Step) -> list[float]:
    """Silence three agents without fast recovery at once. Return the seconds until each one's job runs again.

    None may run again before the fence of its agent.
    """
    names = [f"silent-{number}" for number in range(3)]
    jobs = {}
    for name in names:
        fleet.agent(f"{name}-1", url, "--tags", name)
        body = {"action": {"type": "script", "command": "sleep 600"}, "tags": [name]}
        jobs[name] = fleet.call("POST", f"{url}/api/v1/jobs", fleet.token("client"), body)["id"]
        fleet.agent(f"{name}-2", url, "--tags", f"{name},{name}-2")

    def start_of(name: str, try_: int) -> Any:
        return Attempt.objects.filter(job=jobs[name], number=try_, started_at__isnull=False).first()

    figures = []
    for name in names:
        eventually(lambda name=name: start_of(name, 1), why="the job's code runs")
    holders = {name: start_of(name, 1).server.name for name in names}
    for name in names:
        fleet.processes[holders[name]].send_signal(signal.SIGKILL)
    silenced = time.time()
    for name in names:
        second = eventually(lambda name=name: start_of(name, 2), within=500, why="the job's code runs again")
        figures.append(second.started_at.timestamp() - silenced)
        step()
    assert min(figures) >= FENCE, figures
    for name in names:
        fleet.call("POST", f"{url}/api/v1/jobs/{jobs[name]}/cancel", fleet.token("client"), {})
    return figures


def percentile(figures: list[float]) -> float:
    """Return the 99th of a hundred, or the highest of fewer."""
    return sorted(figures)[min(len(figures) - 1, round(len(figures) * 0.99))]


def median_of(figures: list[float]) -> dict[str, float]:
    return {"median": statistics.median(figures)}


def time_proved_death(fleet: Fleet, url: str, name: str, step: Step, *, everything: bool) -> float:
    """Kill an agent that runs a job and return the seconds until the job's code runs again.

    `everything`: kill its sentinel and reapers too, and count from the registration of the next agent.
    """
    client = fleet.token("client")
    body = {"action": {"type": "script", "command": "sleep 600"}, "tags": [name]}
    victim = fleet.agent(f"{name}-1", url, "--tags", name, is_fast=True)
    job = fleet.call("POST", f"{url}/api/v1/jobs", client, body)

    def running(try_: int) -> Any:
        return Attempt.objects.filter(job=job["id"], number=try_, started_at__isnull=False).first()

    def is_ready() -> bool:
        return Server.objects.filter(name=f"{name}-2", state="RUNNING").exists()

    eventually(lambda: running(1), why="the job's code runs")
    if everything:
        for process in [*psutil.Process(victim.pid).children(recursive=True), psutil.Process(victim.pid)]:
            process.kill()
        victim.wait(5)
        fleet.agent(f"{name}-2", url, "--tags", name, is_fast=True)
        eventually(lambda: Server.objects.filter(name=f"{name}-2").exists(), why="the next agent registers")
        since = Server.objects.get(name=f"{name}-2").created_at.timestamp()
    else:
        fleet.agent(f"{name}-2", url, "--tags", name, is_fast=True)
        eventually(is_ready, why="another is ready")
        since = time.time()
        victim.send_signal(signal.SIGKILL)
    second = eventually(lambda: running(2), why="the job's code runs again")
    fleet.call("POST", f"{url}/api/v1/jobs/{job['id']}/cancel", client, {})
    fleet.end([f"{name}-2"])
    step()
    return float(second.started_at.timestamp() - since)


def crash(fleet: Fleet, url: str, client: str, number: int) -> float:
    """Kill the worker that runs a job while another is idle. Return the seconds until that one has started the job."""
    job = fleet.call("POST", f"{url}/api/v1/jobs", client, {"action": {"type": "script", "command": "sleep 600"}})

    def running(try_: int) -> Any:
        return Attempt.objects.filter(job=job["id"], number=try_, started_at__isnull=False).first()

    eventually(lambda: running(1), why="the job's code runs")
    fleet.agent(f"worker-{number}", url)
    eventually(lambda: Server.objects.filter(name=f"worker-{number}", state="RUNNING").exists(), why="another is ready")
    time.sleep(3 * HEARTBEAT)
    victim = fleet.processes[f"worker-{number - 1}"]
    killed = time.time()
    victim.send_signal(signal.SIGKILL)
    second = eventually(lambda: running(2), why="the job's code runs again")
    fleet.call("POST", f"{url}/api/v1/jobs/{job['id']}/cancel", client, {})
    return second.started_at.timestamp() - killed
