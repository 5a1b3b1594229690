"""Hanging code on a live worker, on real processes: its job runs again, and no other job does."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]
SETTINGS = {
    "JOBS_RUNNER_HEARTBEAT_INTERVAL": "0.5",
    "JOBS_RUNNING_STALE_AFTER": "12",
    "JOBS_SWEEP_INTERVAL": "0.5",
    "LIVENESS_TIMEOUT": "60",
    "LIVENESS_HEARTBEAT_INTERVAL": "0.5",
}
HANGING = """
import ctypes, os, time
def hang_once(_):
    if os.environ["JOB_ATTEMPT"] == "1":
        ctypes.PyDLL(None).sleep(1000)
    return "second"
"""
CLOCK = "select tick > 2 and credit < 1 from liveness_clock"  # checks come every half second now
NAP_ONCE = 'echo $$ > "$PIDS/$JOB_ATTEMPT"; [ $JOB_ATTEMPT = 1 ] && exec sleep 1000; echo second'


def test_a_job_whose_code_hangs_or_was_stopped_runs_again_on_the_same_worker(tmp_path):
    (tmp_path / "hanging.py").write_text(HANGING)
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://", **SETTINGS) as running:
        url, client = running.web(), running.token("client")
        running.executor("executor", "--beat")
        with running.connected() as database:  # what its clock catches up after a start is no silence of code
            eventually(lambda: database.execute(CLOCK).fetchone()[0], within=120, why="checks are made")
        running.env["PYTHONPATH"] += f":{tmp_path}"
        running.env["PIDS"] = str(tmp_path)
        worker = running.agent("worker", url, "--concurrency", "4")

        def submit(action):
            return running.call("POST", f"{url}/api/v1/jobs", client, {"action": action})["id"]

        def look_at(job):
            return running.call("GET", f"{url}/api/v1/jobs/{job}", client)

        hangs = submit({"type": "callable", "path": "hanging:hang_once"})
        stopped = submit({"type": "script", "command": NAP_ONCE})
        busy = submit({"type": "script", "command": "sleep 1000"})
        pid = int(eventually(lambda: (path := Path(tmp_path, "1")).exists() and path.read_text()))
        os.kill(pid, signal.SIGSTOP)
        for job in (hangs, stopped):
            eventually(lambda job=job: look_at(job)["state"] == "COMPLETED", within=120, why="it ran again")
            assert [attempt["state"] for attempt in look_at(job)["attempts"]] == ["RESUBMITTED", "COMPLETED"]
        assert [attempt["state"] for attempt in look_at(busy)["attempts"]] == ["RUNNING"]
        assert worker.poll() is None
