"""A job that is a Celery task, beside the real control plane: its worker is killed, and another one runs it."""

import pytest

from tests.support.celery_fleet import celery_fleet
from tests.support.processes import eventually, fleet
from tests.support.services import RabbitMQ, Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(params=["redis", pytest.param("rabbitmq", marks=pytest.mark.exhaustive)])
def broker(request, tmp_path):
    folder = tmp_path / "broker"
    folder.mkdir()
    with {"redis": Redis, "rabbitmq": RabbitMQ}[request.param](folder) as server:
        yield server


def test_a_job_of_a_killed_worker_runs_elsewhere_with_one_result(tmp_path, broker):
    # The heart of the killed worker reports its end, so nothing waits for this timeout.
    with fleet(tmp_path, LIVENESS_TIMEOUT="60") as running:
        url, client, viewer = running.web(), running.token("client"), running.token("viewer")
        with celery_fleet(tmp_path, broker.url, url, running.token("worker"), BACKEND="") as workers:
            running.executor("executor", "--beat")
            workers.worker("one")
            workers.ready("one")
            work = {"type": "celery", "task": "tests.support.celery_app.work", "queue": "orders"}
            steps = [
                {"key": "work", "action": work | {"args": ["work", 6]}},
                {"key": "then", "depends_on": ["work"], "action": work | {"kwargs": {"name": "then"}}},
            ]
            body = {"name": "nightly", "steps": steps}
            execution = running.call("POST", f"{url}/api/v1/executions", client, body)["id"]
            workers.begun("work")
            workers.kill("one")
            workers.worker("two")
            workers.begun("work", 2)

            def read():
                return running.call("GET", f"{url}/api/v1/executions/{execution}", viewer)

            eventually(lambda: read()["state"] == "COMPLETED", why="both steps complete")
            [job] = [step for step in read()["steps"] if step["key"] == "work"]
            job = running.call("GET", f"{url}/api/v1/jobs/{job['job']}", viewer)
            assert [(attempt["state"], attempt["server"]["name"]) for attempt in job["attempts"]] == [
                ("RESUBMITTED", "one@host"), ("COMPLETED", "two@host"),
            ]  # fmt: skip
            assert job["output"] == "work"
            assert workers.count("end") == {"work": 1, "then": 1}
            shown = running.call("GET", f"{url}/api/v1/jobs?kind=CELERY", viewer)["items"]
            assert not shown, "what is a job already is no second one"
