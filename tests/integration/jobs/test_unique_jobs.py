"""Unique jobs: a submission finds the job with its unique key, and returns, refuses, replaces or extends it."""

import json
import threading

import pytest
from django.db import connection
from django.db.models.functions import Now

from jobs import in_process
from jobs.models import WorkerJob
from jobs.services import unique_jobs
from jobs.sql import sql
from liveness.services import tokens

SCRIPT = {"type": "script", "command": "true"}
LATER, MUCH_LATER = "2090-01-01T00:00:00Z", "2091-01-01T00:00:00Z"


@pytest.fixture
def client(api):
    return api("client")


@pytest.fixture
def put(client):
    """Return a function that submits a job with the unique key `u`: `put(on_conflict="refuse", payload=1)`."""

    def put(status=201, caller=client, job=None, **unique):
        body = {"action": SCRIPT, "unmatched": "wait", "unique": {"key": "u", **unique}, **(job or {})}
        answer = caller.post("/jobs", body)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return put


def test_the_job_that_waits_is_returned(put):
    first = put()
    again = put(200)
    assert (first["duplicate"], again["duplicate"], again["id"]) == (False, True, first["id"])
    assert WorkerJob.objects.count() == 1


def test_a_submission_without_unique_is_no_duplicate(client):
    assert client.post("/jobs", {"action": SCRIPT, "unmatched": "wait"}).json()["duplicate"] is False


def test_a_refusal_names_the_job(put):
    first = put()
    refused = put(409, on_conflict="refuse")
    assert (refused["code"], refused["job"]) == ("duplicate_job", first["id"])


@pytest.mark.parametrize(("lasts", "status"), [("waiting", 201), ("active", 200), (60, 200)])
def test_a_job_that_runs_is_found_unless_only_waiting_ones_are(put, worker, lasts, status):
    put()
    worker().hold()
    put(status, **{"while": lasts})


@pytest.mark.parametrize(("lasts", "status"), [("waiting", 201), ("active", 201), (60, 200)])
def test_a_job_that_has_ended_is_found_for_a_number_of_seconds_only(put, client, lasts, status):
    client.post(f"/jobs/{put()['id']}/cancel", {})
    put(status, **{"while": lasts})


def test_a_number_of_seconds_is_over_while_the_job_still_waits(put, clock):
    put()
    clock.advance(59)
    put(200, **{"while": 60})
    clock.advance(2)
    put(201, **{"while": 60})


def test_a_waiting_job_gets_the_new_payload_and_priority(put):
    first = put(job={"payload": 1, "available_at": LATER})
    again = put(200, on_conflict="replace", job={"payload": 2, "priority": 3, "available_at": MUCH_LATER})
    assert (again["id"], again["payload"], again["priority"]) == (first["id"], 2, 3)
    assert again["available_at"] == LATER


def test_extend_also_moves_its_start(put):
    first = put(job={"payload": 1, "available_at": LATER})
    again = put(200, on_conflict="extend", job={"payload": 2, "available_at": MUCH_LATER})
    assert (again["id"], again["payload"], again["available_at"]) == (first["id"], 2, MUCH_LATER)


def test_extend_also_moves_the_time_until_which_it_is_good(put):
    first = put(job={"available_at": LATER, "good_until": "2090-06-01T00:00:00Z"})
    again = put(200, on_conflict="extend", job={"available_at": MUCH_LATER, "good_until": "2092-01-01T00:00:00Z"})
    assert (again["id"], again["good_until"]) == (first["id"], "2092-01-01T00:00:00Z")
    assert put(200, on_conflict="extend", job={"available_at": MUCH_LATER})["good_until"] is None


@pytest.mark.parametrize(("old", "new"), [({"a": 1}, {"a": True}), (1, 1.0), (0, False)])
def test_a_payload_that_python_takes_for_equal_is_replaced(put, old, new):
    put(job={"payload": old})
    assert json.dumps(put(200, on_conflict="replace", job={"payload": new})["payload"]) == json.dumps(new)


def test_a_new_payload_deletes_the_checkpoint_of_the_old_one(put):
    first = put(job={"payload": 1})
    WorkerJob.objects.update(checkpoint={"row": 17}, checkpoint_at=Now())
    assert put(200, on_conflict="replace", job={"payload": 1})["checkpoint"] == {"row": 17}
    again = put(200, on_conflict="replace", job={"payload": 2})
    assert (again["id"], again["checkpoint"]) == (first["id"], None)


ROWS_READ = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'jobs_workerjob'"


def test_ended_jobs_of_the_key_are_not_read(put, client):
    for _ in range(30):
        client.post(f"/jobs/{put()['id']}/cancel", {})
    waiting = put()
    values = {
        "owner": WorkerJob.objects.latest("id").owner_id,
        "namespace": "default",
        "key": "u",
        "only_waiting": False,
    }
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off; set local enable_bitmapscan = off")
        before = cursor.execute(ROWS_READ).fetchone()[0]
        assert str(sql.find_open_duplicate.fetch_row(**values).id) == waiting["id"]
        assert cursor.execute(ROWS_READ).fetchone()[0] - before == 1


@pytest.mark.parametrize("way", ["replace", "extend"])
def test_of_a_job_that_runs_a_new_one_is_made_once(put, worker, way):
    first = put()
    worker().hold()
    new = put(201, on_conflict=way, job={"payload": 1})
    again = put(200, on_conflict=way, job={"payload": 2})
    assert new["id"] != first["id"] and (again["id"], again["payload"]) == (new["id"], 2)


def test_the_key_of_another_client_is_not_in_the_way(put, api):
    first = put()
    assert put(201, caller=api("client"))["id"] != first["id"]


def test_the_idempotency_key_stays_what_it_is(put):
    first = put(job={"key": "a"})
    again = put(200, job={"key": "a"})
    assert (again["id"], again["duplicate"]) == (first["id"], False)
    other = put(200, job={"key": "b"})
    assert (other["id"], other["duplicate"], other["key"]) == (first["id"], True, "a")


def test_a_list_has_each_key_once(client):
    job = {"action": SCRIPT, "unmatched": "wait"}
    body = [{**job, "unique": {"key": key}} for key in "aba"] + [job]
    items = client.post("/jobs", body).json()["items"]
    assert [item["duplicate"] for item in items] == [False, False, True, False]
    assert items[2]["id"] == items[0]["id"] and WorkerJob.objects.count() == 3
    body[1]["unique"]["on_conflict"] = "refuse"
    assert client.post("/jobs", body).json()["code"] == "duplicate_job"
    assert WorkerJob.objects.count() == 3


def test_a_lost_job_waits_again_beside_its_twin(put, worker, client):
    put()
    one = worker()
    attempt = one.hold()
    twin = put(201, **{"while": "waiting"})
    assert client.post(f"/jobs/{attempt['job']['id']}/resubmit", {}).status_code == 200
    assert put(200)["id"] == twin["id"]
    assert WorkerJob.objects.filter(state="PENDING").count() == 2


def test_code_of_the_project_submits_unique_jobs(db):
    ids = {in_process.submit(SCRIPT, unmatched="wait", unique={"key": "u"}) for _ in range(2)}
    assert len(ids) == 1


@pytest.mark.parametrize(
    "unique",
    [
        1, None, [], "u", {}, {"key": ""}, {"key": 1}, {"key": "x" * 201}, {"key": "a\nb"}, {"key": "u", "x": 1},
        {"key": "u", "while": "never"}, {"key": "u", "while": 0}, {"key": "u", "while": -1},
        {"key": "u", "while": True},
        {"key": "u", "while": 1e300}, {"key": "u", "while": None}, {"key": "u", "on_conflict": "merge"},
    ],
)  # fmt: skip
def test_what_is_no_unique_key_is_refused(client, unique):
    answer = client.post("/jobs", {"action": SCRIPT, "unique": unique})
    assert answer.status_code == 400 and "unique" in answer.json()["errors"]
    assert not WorkerJob.objects.exists()


def test_a_step_cannot_be_unique(client):
    steps = [{"key": "a", "action": SCRIPT, "unique": {"key": "u"}}]
    assert client.post("/executions", {"name": "n", "steps": steps}).status_code == 400


@pytest.mark.parametrize("way", ["return", "replace"])
def test_of_a_hundred_submissions_at_once_exactly_one_is_stored(transactional_db, threads, way):
    owner = tokens.find_token(tokens.create_token("ann", "client"))
    job = {"action": {**SCRIPT, "runner": "local"}, "unmatched": "wait",
           "unique": {"key": "u", "while": "active", "on_conflict": way}}  # fmt: skip
    barrier = threading.Barrier(10)

    def submit_ten():
        barrier.wait(30)
        return [unique_jobs.submit_jobs(owner, [{**job, "payload": n}])[0] for n in range(10)]

    results = [threads(submit_ten) for _ in range(10)]
    submitted = [one for result in results for one in result.result(120)]
    assert WorkerJob.objects.count() == 1
    assert len(submitted) == 100 and sum(one.is_new for one in submitted) == 1
    assert sum(one.is_duplicate for one in submitted) == 99


def test_a_replacement_and_a_claim_at_once_leave_no_payload_out(put, worker, client):
    put(job={"payload": 1})
    attempt = worker().hold(running=False)
    new = put(201, on_conflict="replace", **{"while": "waiting"}, job={"payload": 2})
    assert attempt["job"]["payload"] == 1 and new["payload"] == 2
