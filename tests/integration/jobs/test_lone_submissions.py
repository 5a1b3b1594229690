"""A single submitted job is stored or refused by one statement, which is its own transaction."""

import pytest
from django.db import connection

from jobs.models import WorkerJob
from liveness.services import tokens
from tests.integration.jobs.test_submission import SCRIPT, job
from tests.support.http import Caller
from tests.support.queries import CapturedQueries

DOCKER = {"type": "docker", "image": "busybox"}


@pytest.fixture
def client(committed):
    return Caller(tokens.create_token("client", "client"))


def count():
    return WorkerJob.objects.count()


def test_one_job_is_one_statement_and_a_list_is_a_transaction(client):
    client.post("/jobs", job())  # the first call runs the queries that each process runs once
    with CapturedQueries(connection) as queries:
        assert client.post("/jobs", job()).status_code == 201
    stored = [query["sql"] for query in queries if "controlplane_submit_jobs" in query["sql"]]
    assert len(stored) == 1 and not [query for query in queries if query["sql"] in ("BEGIN", "COMMIT")]
    with CapturedQueries(connection) as queries:
        assert client.post("/jobs", [job(), job()]).status_code == 201
    assert [query["sql"] for query in queries if query["sql"] in ("BEGIN", "COMMIT")] == ["BEGIN", "COMMIT"]


def test_what_is_in_the_way_of_one_job_refuses_it_and_stores_nothing(client, committed, settings):
    committed(tags=["script"])
    for body, code in (
        (job(action=DOCKER), "no_runner"),
        (job(tags=["fpga"], require_worker=True), "no_fresh_workers"),
    ):
        assert client.post("/jobs", body).json()["code"] == code
        assert count() == 0
    settings.JOBS = {**settings.JOBS, "WAITING_LIMIT": 2}
    assert [client.post("/jobs", job()).status_code for _ in range(3)] == [201, 201, 429]
    assert count() == 2
    assert client.post("/jobs", job(require_worker=True)).json()["code"] == "too_many_waiting"


def test_one_job_that_may_have_a_worker_is_stored(client, committed):
    committed(tags=["script"])
    assert client.post("/jobs", job(require_worker=True)).status_code == 201
    assert client.post("/jobs", job(action=DOCKER, unmatched="wait")).status_code == 201
    assert count() == 2


def test_the_key_of_one_job_finds_it_again_whatever_is_in_the_way_now(client, committed):
    first = client.post("/jobs", job(action=DOCKER, key="k")).json()
    committed(tags=["script"])
    again = client.post("/jobs", job(action=DOCKER, key="k"))
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert client.post("/jobs", job(action=SCRIPT, key="k")).json()["code"] == "key_conflict"
    assert client.post("/jobs", job(action=DOCKER, key="l")).json()["code"] == "no_runner"
    assert count() == 1


def test_the_same_key_at_once_makes_one_job(client, committed, threads):
    answers = [threads(client.post, "/jobs", job(key="k")) for _ in range(8)]
    statuses = sorted(answer.result().status_code for answer in answers)
    assert statuses == [200] * 7 + [201] and count() == 1


def test_one_execution_begins_with_what_stored_it(client):
    execution = {"type": "execution", "name": "nightly", "steps": [{"key": "a", "action": SCRIPT}]}
    answer = client.post("/jobs", job(action=execution))
    assert answer.status_code == 201, answer.json()
    assert sorted(WorkerJob.objects.values_list("state", flat=True)) == ["PENDING", "RUNNING"]
