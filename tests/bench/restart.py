"""A worker is killed: how long until another has begun its job, on real processes at the tightest settings."""

import signal
import time
from pathlib import Path
from typing import Any

from jobs.models import Attempt
from liveness.models import Server, ServerEvent
from tests.bench import web
from tests.bench.database import begin
from tests.bench.rows import Row, Step, alternate
from tests.support.processes import Fleet, eventually

INTERVAL, HEARTBEAT, TIMEOUT = 0.1, 0.1, 0.4
TIGHT = {
    "LIVENESS_INTERVAL": str(INTERVAL),
    "LIVENESS_HEARTBEAT_INTERVAL": str(HEARTBEAT),
    "LIVENESS_TIMEOUT": str(TIMEOUT),
    "LIVENESS_INITIAL_DELAY": "0",
    "LIVENESS_TERMINATION_GRACE_PERIOD": "0",
    "LIVENESS_WORKER_TASK_RESTART_STRATEGY": "IMMEDIATELY",
}


def restart(data_dir: Path, step: Step) -> Row:
    """From the kill to the start of the second attempt; no living server may be disconnected meanwhile."""
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


def crash(fleet: Fleet, url: str, client: str, number: int) -> float:
    """Kill the worker that runs a job while the next one stands by; the seconds until that has begun it."""
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
