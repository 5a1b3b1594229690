"""Submission of jobs by clients: each job once, with its state and result."""

import uuid

import pytest
from django.db import connection

from jobs.models import WorkerJob
from jobs.selectors.contents import LARGE
from tests.support.http import Caller
from tests.support.queries import CapturedQueries

SCRIPT = {"type": "script", "command": "true"}
FIELDS = {
    "id", "kind", "state", "action", "payload", "tags", "required_tags", "priority", "timeout_seconds",
    "on_worker_lost", "resubmissions", "retries", "cancel_requested_at", "key", "output", "error", "created_at",
    "available_at", "finished_at", "attempts", "timeline", "late_reports", "resubmission_of", "execution", "step",
    "good_until", "max_retries", "retry_delay_seconds", "retry_backoff", "retry_on", "unmatched",
}  # fmt: skip


@pytest.fixture
def client(api):
    return api("client")


def job(**fields):
    return {"action": SCRIPT, **fields}


def ids(answer):
    return [item["id"] for item in answer.json()["items"]]


def test_a_submitted_job_is_pending_and_returned_in_full(client):
    answer = client.post("/jobs", job())
    body = answer.json()
    assert answer.status_code == 201
    assert set(body) >= FIELDS
    assert uuid.UUID(body["id"]).version == 7
    assert (body["kind"], body["state"], body["priority"], body["on_worker_lost"]) == ("TASK", "PENDING", 0, "RESUBMIT")
    assert body["action"] == {**SCRIPT, "runner": "local"}
    nothing = ("payload", "timeout_seconds", "cancel_requested_at", "key", "output", "error", "finished_at",
               "good_until", "retry_on", "resubmission_of", "execution", "step")  # fmt: skip
    assert {body[field] for field in nothing} == {None}
    assert (body["attempts"], body["late_reports"], body["resubmissions"], body["retries"]) == ([], [], 0, 0)
    assert (body["max_retries"], body["retry_delay_seconds"], body["retry_backoff"]) == (0, 0, "fixed")
    assert body["unmatched"] == "fail"
    (entry,) = body["timeline"]
    assert (entry["attempt"], entry["state"], entry["at"]) == (None, "PENDING", body["created_at"])
    assert body["created_at"].endswith("Z")
    assert client.get(f"/jobs/{body['id']}").json() | {"duplicate": False} == body


def test_what_is_submitted_is_what_is_stored(client):
    fields = job(
        payload={"é\U0001f600": [1, 1.5, None, True, "", {}]}, tags=["b", "a", "b"], priority=-5, timeout_seconds=1.5,
        available_at="2030-01-01T00:00:00Z", on_worker_lost="FAIL", key="k", good_until="2031-01-01T00:00:00Z",
        max_retries=1000, retry_delay_seconds=0.5, retry_backoff="exponential", retry_on=["B", "A"], unmatched="wait",
    )  # fmt: skip
    answer = client.post("/jobs", fields).json()
    assert {field: answer[field] for field in fields} == {
        **fields, "tags": ["a", "b"], "action": {**SCRIPT, "runner": "local"},
    }  # fmt: skip


@pytest.mark.parametrize("payload", [None, 0, "", False, [], {}, "text", 10**18, [[[]]]])
def test_any_json_may_be_a_payload(client, worker, payload):
    assert client.post("/jobs", job(payload=payload)).json()["payload"] == payload
    assert worker().claim()[0]["job"]["payload"] == payload


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"payload": [1.0, 1e2, 1e300, -0.0, 2**63, 0.1, 1e-7, "\u2028", {"b": 1, "aa": {"a": None}}]},
        {"payload": {"password": "x", "deep": [{"api_key": "y"}]}, "tags": ["b", "a", "b"]},
        {"payload": False, "timeout_seconds": 5, "retry_delay_seconds": 3, "priority": -1, "name": "a name"},
        {
            "unmatched": "wait",
            "on_worker_lost": "FAIL",
            "retry_on": [],
            "max_retries": 2,
            "retry_backoff": "exponential",
        },
        {"available_at": "2030-01-01T01:00:00.5+01:00", "good_until": "2031-01-01T00:00:00Z", "key": "k"},
        {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "payload": "x" * LARGE},
        {"action": {"type": "script", "command": "x" * LARGE, "env": {"TOKEN": "z"}}, "payload": 0},
        {"action": {"type": "execution", "name": "one", "steps": [{"key": "a", "action": SCRIPT}]}},
    ],
)
def test_what_is_answered_is_what_is_read(client, fields):
    """The response is built from the row of the statement that stored the job, without another query."""
    alone = client.post("/jobs", job(**fields)).json()
    assert alone == client.get(f"/jobs/{alone['id']}").json() | {"duplicate": False}
    [of_list] = client.post("/jobs", [job(**fields | ({"key": "other"} if "key" in fields else {}))]).json()["items"]
    assert of_list.pop("duplicate") is False and of_list in client.get("/jobs").json()["items"]


def test_the_timeline_has_all_changes_in_order(submit, worker):
    one = submit()
    first, second = worker(name="first"), worker(name="second")
    first.report({"attempt": first.hold(running=False)["id"], "event": "RELEASED", "reason": "full"})
    second.complete(second.hold(), 1)
    job = submit.client.get(f"/jobs/{one['id']}").json()
    assert [(entry["attempt"], entry["state"]) for entry in job["timeline"]] == [
        (None, "PENDING"), (1, "CLAIMED"), (1, "RELEASED"), (2, "CLAIMED"), (2, "RUNNING"), (2, "COMPLETED"),
        (None, "COMPLETED"),
    ]  # fmt: skip
    times = [entry["at"] for entry in job["timeline"]]
    assert times == sorted(times)
    assert [entry["server"]["name"] for entry in job["timeline"][1:-1]] == ["first"] * 2 + ["second"] * 3
    assert job["timeline"][2]["reason"] == "full"
    assert [attempt["server"]["name"] for attempt in job["attempts"]] == ["first", "second"]


def test_a_list_is_answered_in_its_order(client):
    answer = client.post("/jobs", [job(priority=number) for number in range(20)])
    assert answer.status_code == 201
    assert [item["priority"] for item in answer.json()["items"]] == list(range(20))


def test_a_list_of_a_thousand_is_taken_and_of_one_more_refused(client):
    assert len(ids(client.post("/jobs", [job()] * 1000))) == 1000
    assert client.post("/jobs", [job()] * 1001).status_code == 400
    assert WorkerJob.objects.count() == 1000


@pytest.mark.parametrize("bad", [{}, job(priority="x"), job(x=1), 1, None, [], job(tags=[1])], ids=str)
def test_a_list_with_one_bad_job_is_refused_as_a_whole_with_its_place(client, bad):
    answer = client.post("/jobs", [job(), bad, job()])
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert set(answer.json()["errors"]) == {"1"}
    assert not WorkerJob.objects.exists()


@pytest.mark.parametrize("how", ["field", "header", "both"])
def test_the_same_key_again_returns_the_same_job(client, how):
    body = job(key="k") if how != "header" else job()
    headers = {"Idempotency-Key": "k"} if how != "field" else {}
    first, second = client.post("/jobs", body, **headers), client.post("/jobs", body, **headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json()["key"] == "k"
    assert client.post("/jobs", job(key="k")).json()["id"] == first.json()["id"]
    assert WorkerJob.objects.count() == 1


def test_a_known_key_shows_the_job_as_it_is_now(client, worker):
    client.post("/jobs", job(key="k"))
    one = worker()
    one.complete(one.hold(), 42)
    again = client.post("/jobs", job(key="k")).json()
    assert (again["state"], again["output"]) == ("COMPLETED", 42)


@pytest.mark.parametrize(
    "other",
    [{"priority": 1}, {"payload": 1}, {"action": {**SCRIPT, "command": "false"}}, {"tags": ["x"]},
     {"on_worker_lost": "FAIL"}, {"timeout_seconds": 1}, {"available_at": "2030-01-01T00:00:00Z"},
     {"good_until": "2030-01-01T00:00:00Z"}, {"max_retries": 1}, {"retry_delay_seconds": 1}, {"retry_on": ["X"]},
     {"retry_backoff": "exponential"}, {"unmatched": "wait"}],
    ids=str,
)  # fmt: skip
def test_a_known_key_with_other_content_is_a_conflict_and_changes_nothing(client, other):
    first = client.post("/jobs", job(key="k")).json()
    answer = client.post("/jobs", {**job(key="k"), **other})
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
    assert client.get(f"/jobs/{first['id']}").json() | {"duplicate": False} == first
    assert WorkerJob.objects.count() == 1


def test_the_order_of_fields_and_tags_is_no_other_content(client):
    first = client.post("/jobs", job(key="k", tags=["a", "b"], payload={"x": 1, "y": 2}))
    second = client.post("/jobs", {"payload": {"y": 2, "x": 1}, "tags": ["b", "a"], "key": "k", "action": SCRIPT})
    assert (second.status_code, second.json()["id"]) == (200, first.json()["id"])


def test_a_header_with_another_key_than_the_field_is_refused(client):
    assert client.post("/jobs", job(key="k"), **{"Idempotency-Key": "other"}).status_code == 400
    assert not WorkerJob.objects.exists()


@pytest.mark.parametrize("header", ["", "x" * 256])
def test_an_idempotency_key_has_1_to_255_characters(client, header):
    answer = client.post("/jobs", job(), **{"Idempotency-Key": header})
    assert (answer.status_code, set(answer.json()["errors"])) == (400, {"Idempotency-Key"})
    assert client.post("/jobs", job(), **{"Idempotency-Key": "x" * 255}).status_code == 201


def test_a_header_is_no_key_for_a_list(client):
    assert client.post("/jobs", [job()], **{"Idempotency-Key": "k"}).status_code == 400
    assert not WorkerJob.objects.exists()


def test_a_list_finds_its_known_jobs_and_makes_the_others(client):
    known = client.post("/jobs", job(key="a")).json()["id"]
    answer = client.post("/jobs", [job(key="b"), job(key="a"), job(), job(key="b")])
    first, second, third, fourth = ids(answer)
    assert answer.status_code == 201
    assert (second, fourth) == (known, first)
    assert len({first, second, third}) == WorkerJob.objects.count() == 3
    again = client.post("/jobs", [job(key="b"), job(key="a")])
    assert (again.status_code, ids(again)) == (200, [first, known])


@pytest.mark.parametrize(
    "jobs", [[job(), job(key="a", priority=1)], [job(key="b"), job(key="b", priority=1)]], ids=["known", "in the list"]
)
def test_a_conflict_in_a_list_refuses_all_of_it(client, jobs):
    client.post("/jobs", job(key="a"))
    answer = client.post("/jobs", jobs)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
    assert WorkerJob.objects.count() == 1


def test_keys_are_an_owners_own(api):
    first, second = (api("client").post("/jobs", job(key="k")) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


def test_a_job_that_names_no_timeout_has_that_of_the_settings(client, settings):
    settings.JOBS = {"DEFAULT_TIMEOUT": "5m"}
    assert client.post("/jobs", job()).json()["timeout_seconds"] == 300
    assert client.post("/jobs", job(timeout_seconds=7)).json()["timeout_seconds"] == 7
    assert client.post("/jobs", job(timeout_seconds=None)).json()["timeout_seconds"] is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("role", "status"), [("client", 404), ("viewer", 200), ("operator", 200), ("worker", 403), (None, 401)]
)
def test_a_job_is_seen_by_its_client_viewers_and_operators(submit, api, role, status, method):
    path = f"/jobs/{submit()['id']}"
    assert submit.client.call(method, path, b"").status_code == 200
    caller = Caller(None) if role is None else api(role)
    assert caller.call(method, path, b"").status_code == status


@pytest.mark.parametrize(("role", "status"), [("client", 201), ("operator", 201), ("viewer", 403), ("worker", 403)])
def test_clients_and_operators_submit(api, role, status):
    answer = api(role).post("/jobs", job())
    assert answer.status_code == status
    assert status == 201 or answer.json()["code"] == "wrong_role"
    assert WorkerJob.objects.count() == (status == 201)


def test_a_server_token_submits_and_sees_nothing(worker, submit):
    path = f"/jobs/{submit()['id']}"
    server = Caller(worker().token)
    for answer in (server.post("/jobs", job()), server.get(path)):
        assert (answer.status_code, answer.json()["code"]) == (403, "wrong_role")


def test_an_unknown_job_is_a_404(client):
    answer = client.get(f"/jobs/{uuid.uuid4()}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


SECONDS = ["1", True, [], -1, 10**30]
WORD = [1, True, None, "", "x", []]
WRONG = {
    "good_until": [1, True, "", "x", "2020-13-01T00:00:00Z", "infinity", [], {}],
    "max_retries": [-1, 1001, "1", 1.5, True, None, []],
    "retry_delay_seconds": [*SECONDS, None],
    "retry_backoff": [*WORD, "FIXED"],
    "retry_on": [1, "X", {}, [1], [None], [""], ["x" * 256], ["X"] * 101],
    "unmatched": [*WORD, "FAIL"],
    "require_worker": [1, 0, "true", "", None, [], {}],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_a_wrong_value_is_a_400_that_names_the_field(client, field, value):
    answer = client.post("/jobs", job(**{field: value}))
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {field}
    assert not WorkerJob.objects.exists()


@pytest.mark.parametrize("fields", [
    {"max_retries": 0}, {"retry_on": []}, {"retry_on": None}, {"retry_on": ["x" * 255] * 100}, {"good_until": None},
    {"good_until": "2020-01-01T00:00:00Z"},
], ids=lambda fields: str(fields)[:40])  # fmt: skip
def test_values_at_the_limit_are_taken(client, fields):
    answer = client.post("/jobs", job(**fields)).json()
    assert {field: answer[field] for field in fields} == fields


@pytest.mark.parametrize(("until", "status"), [("01", 400), ("00", 400), ("02", 201)])
def test_a_job_is_good_until_after_it_is_available(client, until, status):
    answer = client.post("/jobs", job(available_at="2030-01-01T00:00:01Z", good_until=f"2030-01-01T00:00:{until}Z"))
    assert answer.status_code == status


CONTAINER = {"type": "docker", "image": "registry.example/team/app:1.2@sha256:ab"}


@pytest.mark.parametrize(("action", "field"), [
    ({"type": "script", "runner": "docker", "command": "true"}, "image"),
    ({"type": "script", "command": "true", "resources": {"cpus": 1}}, "resources"),
    ({"type": "docker", "image": "--privileged"}, "image"),
    ({**CONTAINER, "resources": {"memory": "lots"}}, "memory"),
    ({**CONTAINER, "resources": {"cpus": 0}}, "cpus"),
    ({**CONTAINER, "resources": {"disks": 1}}, "disks"),
])  # fmt: skip
def test_what_a_container_is_to_be_is_checked_when_its_job_is_submitted(client, action, field):
    answer = client.post("/jobs", {"action": action})
    assert answer.status_code == 400 and field in str(answer.json()["errors"])


def test_a_container_that_no_worker_runs_is_refused_with_a_sentence_or_waits(client, worker):
    worker(tags=["script"])
    body = {"action": {**CONTAINER, "env": {"A": "b"}, "resources": {"cpus": 1.5, "memory": "2G", "gpus": 1}}}
    refused = client.post("/jobs", {**body, "require_worker": True})
    assert (refused.status_code, refused.json()["code"]) == (503, "no_fresh_workers")
    assert refused.json()["detail"].endswith(": docker, runtime:gpu (tags).")
    assert client.post("/jobs", {**body, "unmatched": "wait"}).json()["state"] == "PENDING"


def test_jobs_that_nobody_has_claimed_are_answered_without_asking_for_their_attempts(api):
    client = api("client")
    with CapturedQueries(connection) as queries:
        answer = client.post("/jobs", [{"action": SCRIPT, "key": "a"}, {"action": SCRIPT}])
    assert [job["attempts"] for job in answer.json()["items"]] == [[], []]
    assert not [query for query in queries if 'FROM "jobs_attempt"' in query["sql"]]
