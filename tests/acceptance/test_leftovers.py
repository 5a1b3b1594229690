"""Leftover reports: a worker that ended during an outage sends its results at its next start."""

import signal

import pytest

from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance


def test_a_completion_during_an_outage_is_accepted_at_the_agents_next_start(tmp_path):
    with fleet(tmp_path, LIVENESS_TIMEOUT="60", LIVENESS_INITIAL_DELAY="60") as running:
        url, client = running.web(), running.token("client")
        running.executor("executor", "--beat")
        worker = running.agent("worker", url, "--grace", "1")
        ledger, go = tmp_path / "ledger", tmp_path / "go"
        script = f"echo $JOB_ATTEMPT >> {ledger}; while [ ! -e {go} ]; do sleep 0.05; done; echo did it"
        action = {"type": "script", "command": script}
        job = running.call("POST", f"{url}/api/v1/jobs", client, {"action": action})
        eventually(ledger.exists, why="the job's code runs")

        running.kill("web")
        go.touch()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 1
        [left] = (tmp_path / "state" / "worker").iterdir()

        running.web(port=int(url.rpartition(":")[2]))
        running.agent("worker", url)

        def read_job():
            return running.call("GET", f"{url}/api/v1/jobs/{job['id']}", client)

        done = eventually(lambda: (job := read_job())["state"] == "COMPLETED" and job, why="the completion is accepted")
        assert done["output"]["stdout"] == "did it\n"
        assert [attempt["state"] for attempt in done["attempts"]] == ["COMPLETED"]
        assert ledger.read_text() == "1\n"
        eventually(lambda: not left.exists(), why="what was answered is not kept")
