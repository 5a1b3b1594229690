"""A job that kills its worker stops after MAX_RESUBMISSIONS, and the jobs beside it complete."""

import sys

import pytest

from tests.support.processes import eventually, fleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900), pytest.mark.exhaustive]

BYSTANDERS = 19
AGAIN = "import subprocess, sys\nwhile True: subprocess.run(sys.argv[1:])"


def test_nineteen_bystanders_complete_while_the_poison_beside_them_ends_quarantined(tmp_path):
    with fleet(tmp_path) as running:
        url, client = running.web(), running.token("client")
        running.executor("executor", "--beat")
        # The parent of a script is its reaper, the parent of which is the agent.
        poison = {"action": {"type": "script", "command": "kill -9 $(awk '/^PPid/ {print $2}' /proc/$PPID/status)"}}
        bystander = {"action": {"type": "script", "command": "sleep 0.1; echo done"}}
        submitted = running.call("POST", f"{url}/api/v1/jobs", client, [poison, *[bystander] * BYSTANDERS])["items"]
        for name in ("worker-1", "worker-2"):
            agent = ["-m", "controlplane.agent", "--url", url, "--name", name, "--poll", "0.2", "--concurrency", "20"]
            agent += ["--restart-strategy", "IMMEDIATELY"]
            running.start(name, "-c", AGAIN, sys.executable, *agent, CONTROLPLANE_TOKEN=running.token("worker"))

        def ended():
            jobs = [running.call("GET", f"{url}/api/v1/jobs/{job['id']}", client) for job in submitted]
            return all(job["finished_at"] for job in jobs) and jobs

        # The losses of one job are 0, 10 and 60 s apart, and a quarter more at the most.
        jobs = eventually(ended, within=200, why="all have ended")
        assert [job["state"] for job in jobs] == ["FAILED"] + ["COMPLETED"] * BYSTANDERS
        assert jobs[0]["error"]["code"] == "RESUBMISSIONS_EXHAUSTED"
        assert len(jobs[0]["attempts"]) == 4
        assert any(job["resubmissions"] for job in jobs[1:]), "no bystander was beside it: this proves nothing"
