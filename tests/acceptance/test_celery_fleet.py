"""Protected Celery workers beside the real control plane: they are servers, and their tasks are jobs."""

import os
import signal
from functools import partial

import pytest
import redis

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet
from tests.support.processes import eventually, fleet
from tests.support.services import Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


def test_a_worker_registers_dies_and_ends_and_its_task_runs_elsewhere(tmp_path):
    (tmp_path / "redis").mkdir()
    with fleet(tmp_path) as running, Redis(tmp_path / "redis") as broker:
        url = running.web()
        viewer = running.token("viewer")

        def states():
            items = running.call("GET", f"{url}/api/v1/servers?type=WORKER", viewer)["items"]
            return {server["name"]: server["state"] for server in items}

        with celery_fleet(tmp_path, broker.url, url, running.token("worker")) as workers:
            redis.Redis.from_url(broker.url).flushall()
            workers.worker("one", "-Q", "orders,letters")
            workers.ready("one")
            eventually(lambda: states().get("one@host") == "RUNNING", why="it is seen")
            [server] = running.call("GET", f"{url}/api/v1/servers?tag=queue:letters", viewer)["items"]
            assert server["tags"] == ["celery", "celery:orders", "queue:letters", "queue:orders"]
            assert server["pid"] == workers.processes["one"].pid and server["max_concurrent"] == 1
            sent = workers.send("work", "running", UNTIL_RELEASED)

            def job():
                [item] = running.call("GET", f"{url}/api/v1/jobs?key={sent.id}", viewer)["items"]
                return item

            workers.begun("running")
            eventually(lambda: running.call("GET", f"{url}/api/v1/jobs?key={sent.id}", viewer)["items"], why="a job")
            workers.kill("one")
            workers.worker("two")
            workers.begun("running", 2)
            eventually(lambda: states().get("one@host", "NOT_RUNNING") not in ("RUNNING", "DISCONNECTED"), why="ERROR")
            workers.release("running")
            eventually(lambda: workers.count("end")["running"] == 1, why="the task ends")
            eventually(lambda: job()["state"] == "COMPLETED", why="its job too")
            lost, ended = job()["attempts"]
            assert (lost["state"], ended["state"]) == ("RESUBMITTED", "COMPLETED")
            assert (lost["server"]["name"], ended["server"]["name"]) == ("one@host", "two@host")
            assert job()["action"]["task"] == "tests.support.celery_app.work"
            eventually(lambda: states().get("two@host") == "RUNNING", why="the other is seen")
            os.kill(workers.processes["two"].pid, signal.SIGTERM)
            assert workers.processes["two"].wait(40) == 0
            assert states()["two@host"] == "TERMINATED_GRACEFULLY"


def test_an_operator_sends_a_quarantined_task_again(tmp_path):
    (tmp_path / "redis").mkdir()
    with fleet(tmp_path) as running, Redis(tmp_path / "redis") as broker:
        url = running.web()
        operator = running.token("operator")

        def jobs():
            items = running.call("GET", f"{url}/api/v1/jobs?kind=CELERY", operator)["items"]
            return [job for job in items if job["action"]["task_id"] == "poison"]

        once = {"CONTROLPLANE_CELERY_MAX_RESUBMISSIONS": "0"}
        with celery_fleet(tmp_path, broker.url, url, running.token("worker"), **once) as workers:
            redis.Redis.from_url(broker.url).flushall()
            workers.worker("one")
            workers.ready("one")
            poison = workers.send("poison", False, id="poison")
            eventually(lambda: [job["state"] for job in jobs()] == ["FAILED"], why="it is in quarantine")
            [job] = jobs()
            assert job["error"]["code"] == "RESUBMISSIONS_EXHAUSTED" and poison.state == "FAILURE"
            running.call("POST", f"{url}/api/v1/jobs/{job['id']}/resubmit", operator, {"note": "mended"})
            eventually(lambda: workers.count("start")["poison"] == 2, why="it runs again")
            eventually(lambda: len(jobs()) == 2, why="it is another job")
            assert jobs()[0]["resubmission_of"] == job["id"]


def test_a_task_of_a_lost_host_runs_elsewhere_and_its_job_shows_both(tmp_path):
    (tmp_path / "redis").mkdir()
    with fleet(tmp_path) as running, Redis(tmp_path / "redis") as broker:
        url = running.web()
        running.executor("executor")
        running.beat()
        viewer = running.token("viewer")
        with celery_fleet(tmp_path, broker.url, url, running.token("worker")) as workers:
            redis.Redis.from_url(broker.url).flushall()
            workers.worker("one")
            workers.ready("one")
            sent = workers.send("work", "running", UNTIL_RELEASED)
            path = f"{url}/api/v1/jobs?key={sent.id}"
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


def test_a_job_that_is_cancelled_is_revoked_in_celery(tmp_path):
    (tmp_path / "redis").mkdir()
    with fleet(tmp_path) as running, Redis(tmp_path / "redis") as broker:
        url = running.web()
        operator = running.token("operator")
        with celery_fleet(tmp_path, broker.url, url, running.token("worker")) as workers:
            redis.Redis.from_url(broker.url).flushall()
            workers.worker("one")
            workers.ready("one")
            sent = workers.send("work", "running", UNTIL_RELEASED)
            path = f"{url}/api/v1/jobs?key={sent.id}"
            [job] = eventually(lambda: running.call("GET", path, operator)["items"], why="a job")
            running.call("POST", f"{url}/api/v1/jobs/{job['id']}/cancel", operator, {"note": "wrong"})
            eventually(lambda: sent.state == "REVOKED", why="it is revoked")
            jobs = partial(running.call, "GET", path, operator)
            eventually(lambda: jobs()["items"][0]["state"] == "CANCELLED", why="its job ends")
            eventually(lambda: workers.unacked() == 0, why="nothing is left over")
