"""Single jobs over HTTP share transactions, and each that was acknowledged survives a killed web process."""

import threading

import pytest
import urllib3

from tests.support.processes import eventually, fleet

pytestmark = pytest.mark.acceptance

CLIENTS, ENOUGH = 8, 300
JOB = {"action": {"type": "script", "command": "true"}}


def test_no_acknowledged_job_is_lost_with_a_killed_web_process(tmp_path):
    with fleet(tmp_path) as running:
        url, token = running.web("web"), running.token("client")
        acknowledged: list[str] = []

        def submit_until_it_dies() -> None:
            http = urllib3.HTTPConnectionPool(
                url.removeprefix("http://").partition(":")[0], int(url.rpartition(":")[2])
            )
            try:
                while True:
                    headers = {"Authorization": f"Bearer {token}"}
                    answer = http.request("POST", "/api/v1/jobs", json=JOB, headers=headers, retries=False, timeout=60)
                    assert answer.status == 201, answer.data
                    acknowledged.append(answer.json()["id"])
            except urllib3.exceptions.HTTPError:
                pass

        clients = [threading.Thread(target=submit_until_it_dies) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        eventually(lambda: len(acknowledged) >= ENOUGH, why="jobs are acknowledged")
        running.kill("web")
        for client in clients:
            client.join(60)
        with running.connected() as database:
            stored = {
                str(id): transaction
                for id, transaction in database.execute("select id, xmin::text from jobs_workerjob")
            }
    assert len(acknowledged) >= ENOUGH and set(acknowledged) <= stored.keys()
    assert len(set(stored.values())) < len(stored), "no two jobs shared a transaction"
