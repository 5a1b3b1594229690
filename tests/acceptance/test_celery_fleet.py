"""Protected Celery workers beside the real control plane: they are servers, and their tasks are jobs."""

import os
import signal
from functools import partial

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet
from tests.support.processes import eventually
from tests.support.processes import fleet as control_plane

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(request, tmp_path_factory):
    """Start the control plane; the parameter is its timeout in seconds, if a test waits for it."""
    timeout = getattr(request, "param", "60")
    with control_plane(tmp_path_factory.mktemp("plane"), LIVENESS_TIMEOUT=timeout) as running:
        running.url = running.web()
        yield running


@pytest.fixture
def workers(tmp_path, running, redis_server):
    with celery_fleet(tmp_path, redis_server.url, running.url, running.token("worker")) as fleet:
        fleet.redis.flushall()
        yield fleet


def test_a_worker_registers_dies_and_ends_and_its_task_runs_elsewhere(running, workers):
    viewer = running.token("viewer")

    def states():
        items = running.call("GET", f"{running.url}/api/v1/servers?type=WORKER", viewer)["items"]
        return {server["name"]: server["state"] for server in items}

    workers.worker("first", "-Q", "orders,letters")
    workers.ready("first")
    eventually(lambda: states().get("first@host") == "RUNNING", why="it is seen")
    [server] = running.call("GET", f"{running.url}/api/v1/servers?tag=queue:letters", viewer)["items"]
    assert server["tags"] == ["celery", "celery:orders", "queue:letters", "queue:orders"]
    assert server["pid"] == workers.processes["first"].pid and server["max_concurrent"] == 1
    sent = workers.send("work", "running", UNTIL_RELEASED)

    def job():
        [item] = running.call("GET", f"{running.url}/api/v1/jobs?key={sent.id}", viewer)["items"]
        return item

    workers.begun("running")
    eventually(lambda: running.call("GET", f"{running.url}/api/v1/jobs?key={sent.id}", viewer)["items"], why="a job")
    workers.kill("first")
    workers.worker("second")
    workers.begun("running", 2)
    eventually(lambda: states().get("first@host", "NOT_RUNNING") not in ("RUNNING", "DISCONNECTED"), why="ERROR")
    workers.release("running")
    eventually(lambda: workers.count("end")["running"] == 1, why="the task ends")
    eventually(lambda: job()["state"] == "COMPLETED", why="its job too")
    lost, ended = job()["attempts"]
    assert (lost["state"], ended["state"]) == ("RESUBMITTED", "COMPLETED")
    assert (lost["server"]["name"], ended["server"]["name"]) == ("first@host", "second@host")
    assert job()["action"]["task"] == "tests.support.celery_app.work"
    eventually(lambda: states().get("second@host") == "RUNNING", why="the other is seen")
    os.kill(workers.processes["second"].pid, signal.SIGTERM)
    assert workers.processes["second"].wait(40) == 0
    assert states()["second@host"] == "TERMINATED_GRACEFULLY"


def test_an_operator_sends_a_quarantined_task_again(running, workers):
    operator = running.token("operator")

    def jobs():
        items = running.call("GET", f"{running.url}/api/v1/jobs?kind=CELERY", operator)["items"]
        return [job for job in items if job["action"]["task_id"] == "poison"]

    workers.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "0"
    workers.worker("one")
    workers.ready("one")
    poison = workers.send("poison", False, id="poison")
    eventually(lambda: [job["state"] for job in jobs()] == ["FAILED"], why="it is in quarantine")
    [job] = jobs()
    assert job["error"]["code"] == "RESUBMISSIONS_EXHAUSTED" and poison.state == "FAILURE"
    running.call("POST", f"{running.url}/api/v1/jobs/{job['id']}/resubmit", operator, {"note": "mended"})
    eventually(lambda: workers.count("start")["poison"] == 2, why="it runs again")
    eventually(lambda: len(jobs()) == 2, why="it is another job")
    assert jobs()[0]["resubmission_of"] == job["id"]


# It has its own control plane, because its executor would also find the dead workers of the other tests.
@pytest.mark.parametrize("running", ["10"], indirect=True)
def test_a_task_of_a_lost_host_runs_elsewhere_and_its_job_shows_both(running, workers):
    running.executor("executor")
    running.beat()
    viewer = running.token("viewer")
    workers.worker("one")
    workers.ready("one")
    sent = workers.send("work", "running", UNTIL_RELEASED)
    path = f"{running.url}/api/v1/jobs?key={sent.id}"
    eventually(lambda: running.call("GET", path, viewer)["items"], why="a job")
    workers.worker("two")
    workers.ready("two")
    workers.kill("one", heart=True)
    workers.begun("running", 2)
    assert workers.unacked() == 1

    def attempts():
        [job] = running.call("GET", path, viewer)["items"]
        return [(attempt["state"], attempt["server"]["name"]) for attempt in job["attempts"]]

    expected = [("RESUBMITTED", "one@host"), ("RUNNING", "two@host")]
    eventually(lambda: attempts() == expected, why="the other has it")


def test_a_job_that_is_cancelled_is_revoked_in_celery(running, workers):
    operator = running.token("operator")
    workers.worker("one")
    workers.ready("one")
    sent = workers.send("work", "running", UNTIL_RELEASED)
    path = f"{running.url}/api/v1/jobs?key={sent.id}"
    [job] = eventually(lambda: running.call("GET", path, operator)["items"], why="a job")
    running.call("POST", f"{running.url}/api/v1/jobs/{job['id']}/cancel", operator, {"note": "wrong"})
    eventually(lambda: sent.state == "REVOKED", why="it is revoked")
    jobs = partial(running.call, "GET", path, operator)
    eventually(lambda: jobs()["items"][0]["state"] == "CANCELLED", why="its job ends")
    eventually(lambda: workers.unacked() == 0, why="nothing is left over")
