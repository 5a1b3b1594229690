"""The client on real processes: a worker is killed while the client waits, and its wait answers the second attempt."""

import signal

import pytest

from controlplane.client import Client
from controlplane.client.__main__ import main
from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance


def test_who_waits_for_a_job_whose_worker_is_killed_is_answered_its_second_attempt(tmp_path, capsys, monkeypatch):
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        for name in ("worker-1", "worker-2"):
            one.agent(name, url)
        began = tmp_path / "began"
        # The first try never ends by itself; the second finds that it has begun before.
        script = f'if [ -e "{began}" ]; then echo "try $JOB_ATTEMPT"; else touch "{began}"; sleep 600; fi'
        with Client(url, one.token("client")) as client:
            job = client.submit({"type": "script", "command": script})
            eventually(began.exists, why="the job's code runs")
            (first,) = eventually(lambda: [a for a in client.job(job)["attempts"] if a["state"] == "RUNNING"])
            one.processes[first["server"]["name"]].send_signal(signal.SIGKILL)
            done = client.wait(job, timeout=60)
            assert [attempt["state"] for attempt in done["attempts"]] == ["RESUBMITTED", "COMPLETED"]
            assert done["state"] == "COMPLETED" and done["output"]["stdout"] == "try 2\n"
            assert [(line["attempt"], line["line"]) for line in client.logs(job, follow=True)] == [(2, "try 2")]
            assert client.wait_any([job], timeout=60)["id"] == job["id"]

        monkeypatch.setenv("CONTROLPLANE_URL", url)
        monkeypatch.setenv("CONTROLPLANE_TOKEN", one.token("operator"))
        assert main(["submit", "--follow", "echo from a command line"]) == 0
        assert "from a command line" in capsys.readouterr().out
        assert main(["submit", "--wait", "exit 3"]) == 1
        assert main(["job", job["id"]]) == 0
        assert first["server"]["name"] in capsys.readouterr().out
        (alive,) = {"worker-1", "worker-2"} - {first["server"]["name"]}
        assert main(["cordon", alive, "--note", "a new disk"]) == 0
        assert main(["servers", "--type", "WORKER"]) == 0
        assert "cordoned" in capsys.readouterr().out
        assert main(["instance"]) == 0
