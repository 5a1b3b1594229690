"""Quotas of namespaces: jobs that wait, and submissions in a minute."""

import pytest
from django.db import connection

from controlplane.core.sql_book import compose_statement
from jobs import in_process
from jobs.models import LimitBucket, WorkerJob
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller
from tests.support.plans import nodes

SCRIPT = {"action": {"type": "script", "command": "true"}, "unmatched": "wait"}
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled")]


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def quota(operator):
    def quota(pattern="namespace:default", status=201, caller=operator, **fields):
        answer = caller.call("put", f"/limits/{pattern}", fields)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return quota


@pytest.fixture
def client(api):
    return api("client")


def refused(answer, field, limit):
    body = answer.json()
    assert (answer.status_code, body["code"], body["field"], body["limit"]) == (429, "quota_exceeded", field, limit)
    return answer


def submitted(client, number=None, **fields):
    body = {**SCRIPT, **fields}
    return client.post("/jobs", body if number is None else [body] * number)


def test_as_many_jobs_wait_as_the_quota_allows(quota, client, worker):
    quota(max_waiting=2)
    assert submitted(client).status_code == submitted(client).status_code == 201
    assert int(refused(submitted(client), "max_waiting", 2).headers["Retry-After"]) > 0
    assert WorkerJob.objects.count() == 2
    worker().hold()
    assert submitted(client).status_code == 201


def test_parked_jobs_wait_as_well(quota, client):
    quota(max_waiting=2, running=0)
    assert submitted(client, 2).status_code == 201
    refused(submitted(client), "max_waiting", 2)


def test_a_list_is_refused_as_a_whole(quota, client):
    quota(max_waiting=2)
    assert "Retry-After" not in refused(submitted(client, 3), "max_waiting", 2).headers
    assert WorkerJob.objects.count() == 0
    quota(submissions_per_minute=2, status=200)
    answer = refused(submitted(client, 3), "submissions_per_minute", 2)
    assert "Retry-After" not in answer.headers
    assert submitted(client, 2).status_code == 201


def test_as_many_jobs_are_submitted_in_a_minute_as_the_quota_allows(quota, client, clock):
    quota(submissions_per_minute=6)
    assert submitted(client, 6).status_code == 201
    assert refused(submitted(client), "submissions_per_minute", 6).headers["Retry-After"] == "10"
    clock.step(9)
    refused(submitted(client), "submissions_per_minute", 6)
    clock.step(1)
    assert submitted(client).status_code == 201
    refused(submitted(client), "submissions_per_minute", 6)
    clock.step(3600)
    assert submitted(client, 6).status_code == 201


def test_a_refused_submission_is_not_counted(quota, client):
    quota(submissions_per_minute=2, max_waiting=1)
    refused(submitted(client, 2), "max_waiting", 1)
    assert submitted(client, action={"type": "nothing"}).status_code == 400
    quota(submissions_per_minute=2, status=200)
    assert submitted(client, 2).status_code == 201


def test_a_repeated_submission_is_counted_once(quota, client):
    quota(submissions_per_minute=2)
    assert [submitted(client, key="a").status_code for _ in range(4)] == [201, 200, 200, 200]
    assert submitted(client, key="b").status_code == 201
    assert submitted(client, key="a").status_code == 200
    refused(submitted(client, key="c"), "submissions_per_minute", 2)


def test_a_duplicate_of_a_unique_job_is_not_counted(quota, client):
    quota(submissions_per_minute=1)
    unique = {"key": "u", "while": "waiting", "on_conflict": "return"}
    assert [submitted(client, unique=unique).status_code for _ in range(3)] == [201, 200, 200]
    refused(submitted(client), "submissions_per_minute", 1)


def test_an_execution_is_one_submission_and_its_first_steps_wait(quota, client):
    quota(submissions_per_minute=2, max_waiting=2)
    body = {"name": "x", "steps": [step("a"), step("b", "a"), step("c", "a")]}
    assert client.post("/executions", body).status_code == 201
    assert submitted(client, action={"type": "execution", **body}).status_code == 201
    refused(client.post("/executions", body), "max_waiting", 2)
    quota(submissions_per_minute=2, status=200)
    refused(client.post("/executions", body), "submissions_per_minute", 2)
    assert WorkerJob.objects.filter(state="PENDING").count() == 2


def test_an_execution_that_is_known_is_not_counted(quota, client):
    quota(submissions_per_minute=1)
    body = {"name": "x", "key": "k", "steps": [step("a")]}
    assert [client.post("/executions", body).status_code for _ in range(3)] == [201, 200, 200]


def test_retries_triggers_and_the_projects_code_are_not_refused(quota, client, operator, worker):
    submitted(client, max_retries=1)
    quota(max_waiting=0, submissions_per_minute=1)
    held = worker().hold()
    assert in_process.submit(SCRIPT["action"], unmatched="wait")
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT["action"],
            "execution": {"name": "f", "steps": [step("s")]}}  # fmt: skip
    trigger = operator.post("/triggers", body).json()["id"]
    assert operator.post(f"/triggers/{trigger}/evaluate", {}).status_code < 300
    assert held
    refused(submitted(client), "max_waiting", 0)


def test_other_namespaces_have_quotas_of_their_own(quota, client):
    red = Caller(tokens.create_token("red client", "client", namespace="red"))
    quota("namespace:red", max_waiting=1)
    assert submitted(client, 5).status_code == submitted(red).status_code == 201
    refused(submitted(red), "max_waiting", 1)


def test_a_quota_of_each_namespace_and_one_of_its_own(quota):
    red, blue = (Caller(tokens.create_token(name, "client", namespace=name)) for name in ("red", "blue"))
    quota("namespace:*", max_waiting=1, submissions_per_minute=100)
    quota("namespace:red", max_waiting=3)
    assert submitted(red, 3).status_code == submitted(blue).status_code == 201
    refused(submitted(red), "max_waiting", 3)
    refused(submitted(blue), "max_waiting", 1)
    assert LimitBucket.objects.count() == 2


def test_the_quota_of_a_namespace_cannot_raise_that_of_default(quota):
    boss = Caller(tokens.create_token("red", "operator", namespace="red"))
    red = Caller(tokens.create_token("red client", "client", namespace="red"))
    quota("namespace:red", max_waiting=1)
    quota("namespace:red", caller=boss, max_waiting=5)
    refused(submitted(red, 2), "max_waiting", 1)


def test_a_namespace_sets_no_rule_for_another_one(quota):
    boss = Caller(tokens.create_token("red", "operator", namespace="red"))
    quota("namespace:blue", 400, boss, max_waiting=5)
    quota("namespace:*", 201, boss, max_waiting=5)
    nested = Caller(tokens.create_token("a:b", "operator", namespace="a:b"))
    quota("namespace:a:*", 201, nested, max_waiting=5)


def test_max_running_is_the_same_as_running(quota, client, worker, operator):
    made = quota(max_running=1)
    assert (made["running"], made["max_running"]) == (1, 1)
    submitted(client, 3)
    assert len(worker().claim()) == 1
    assert quota("a", running=1)["max_running"] is None


def test_a_rule_with_quotas_alone_adds_no_key_to_jobs(quota, client, worker):
    quota(max_waiting=5)
    submitted(client)
    worker().hold()
    assert WorkerJob.objects.get().limits is None


@pytest.mark.parametrize(
    ("pattern", "fields"),
    [
        ("a", {"max_waiting": 1}), ("tag:a", {"submissions_per_minute": 1}), ("action:a", {"max_running": 1}),
        ("namespace:a", {"max_running": 1, "running": 2}), ("namespace:a", {"max_waiting": -1}),
        ("namespace:a", {"submissions_per_minute": 0}), ("namespace:a", {"max_waiting": 1.5}), ("namespace:a", {}),
    ],
)  # fmt: skip
def test_quotas_that_are_wrong_are_refused(quota, pattern, fields):
    quota(pattern, status=400, **fields)


def test_a_submission_reads_no_parked_jobs_of_other_namespaces(quota, client, of):
    quota("customer:*", running=0)
    quota("namespace:red", max_waiting=100)
    others = [{**SCRIPT, "limits": [f"customer:{number}"]} for number in range(300)]
    assert client.post("/jobs", others).status_code == 201
    assert of("red", "client").post("/jobs", [{**SCRIPT, "limits": ["customer:1"]}] * 2).status_code == 201
    with connection.cursor() as cursor:
        cursor.execute("analyze jobs_workerjob")
        statement = compose_statement("jobs", "spend_quotas")
        cursor.execute(f"explain (analyze, format json) {statement}", {"namespace": "red", "jobs": 1})
        [[[plan]]] = cursor.fetchall()
    [read] = [node for node in nodes(plan["Plan"]) if node.get("Index Name") == "job_parked_of_namespace"]
    assert (read["Actual Rows"], read.get("Rows Removed by Filter", 0)) == (2, 0)
