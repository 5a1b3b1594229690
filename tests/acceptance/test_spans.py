"""Spans of real agents. A killed agent has sent the span of its claim, and the next attempt links to that span."""

import json
import signal

import pytest

from tests.support.processes import eventually, fleet
from tests.support.spans import require_sdk

pytestmark = pytest.mark.acceptance
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_the_attempt_after_a_killed_worker_links_to_what_that_one_sent(tmp_path):
    require_sdk()
    with fleet(tmp_path, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        files = {name: tmp_path / f"{name}.spans" for name in ("worker-1", "worker-2")}
        for name, file in files.items():
            one.start(
                name, "-m", "tests.support.spans", "--url", url, "--name", name, "--poll", "0.2", "--runtimes", "",
                CONTROLPLANE_TOKEN=one.token("worker"), SPANS=str(file),
            )  # fmt: skip
        client, began = one.token("client"), tmp_path / "began"
        script = f'if [ -e "{began}" ]; then echo "$TRACEPARENT"; else touch "{began}"; sleep 600; fi'
        body = {"action": {"type": "script", "command": script}, "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        job = one.call("POST", f"{url}/api/v1/jobs", client, body)["id"]

        def now():
            return one.call("GET", f"{url}/api/v1/jobs/{job}", client)

        eventually(began.exists, why="the job's code runs")
        first = now()["attempts"][0]["server"]["name"]
        one.processes[first].send_signal(signal.SIGKILL)
        eventually(lambda: now()["state"] == "COMPLETED", why="another has run it")
        output = now()["output"]["stdout"].strip()
    (other,) = set(files) - {first}
    (lost,) = map(json.loads, files[first].read_text().splitlines())
    claim, run = map(json.loads, files[other].read_text().splitlines())
    assert [lost["name"], claim["name"], run["name"]] == ["job claim"] * 2 + ["job attempt"]
    assert claim["links"][0]["context"]["span_id"] == lost["context"]["span_id"]
    assert {span["context"]["trace_id"] for span in (lost, claim, run)} == {f"0x{TRACE}"}
    assert output.split("-")[1:3] == [TRACE, run["context"]["span_id"].removeprefix("0x")]
