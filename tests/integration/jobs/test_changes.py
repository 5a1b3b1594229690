"""A job that waits can be changed; one that has started cannot."""

import pytest
from django.utils import timezone

from jobs.models import StoredBytes, WorkerJob
from jobs.services import stored_bytes
from liveness.models import ServerEvent
from tests.support.executions import step

SCRIPT = {"type": "script", "command": "true"}
LATER = "2090-01-01T00:00:00Z"


@pytest.fixture
def client(api):
    return api("client")


@pytest.fixture
def job(client):
    def make(**fields):
        answer = client.post("/jobs", {"action": SCRIPT, "unmatched": "wait", **fields})
        assert answer.status_code == 201, answer.json()
        return answer.json()["id"]

    return make


def change(caller, job, status=200, **changes):
    answer = caller.call("PATCH", f"/jobs/{job}", changes)
    assert answer.status_code == status, answer.json()
    return answer.json()


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("priority", 7, 7), ("tags", ["gpu"], ["gpu"]), ("timeout_seconds", 5, 5.0), ("timeout_seconds", None, None),
        ("max_retries", 3, 3), ("payload", {"a": [1]}, {"a": [1]}), ("payload", None, None),
        ("available_at", LATER, LATER),
    ],
)  # fmt: skip
def test_a_field_of_a_waiting_job_is_changed(client, job, field, value, shown):
    id = job(timeout_seconds=9, payload=1)
    assert change(client, id, **{field: value})[field] == shown
    assert client.get(f"/jobs/{id}").json()[field] == shown


def test_the_event_has_the_old_and_the_new_values_and_the_note(client, job):
    id = job(priority=1, payload={"password": "secret stuff"})
    change(client, id, priority=9, max_retries=0, payload={"password": "another"}, note="urgent")
    event = ServerEvent.objects.get(action="change_job")
    assert (event.subject_type, event.subject_id, event.actor, event.note) == ("job", id, "client:a client", "urgent")
    assert event.changes["priority"] == {"old": 1, "new": 9}
    assert event.changes.keys() == {"priority", "payload"}, "max_retries was 0 before"
    assert "stuff" not in str(event.changes)


def test_a_change_that_changes_nothing_leaves_no_event(client, job):
    id = job(priority=1)
    change(client, id, priority=1)
    assert not ServerEvent.objects.filter(action="change_job").exists()


def test_a_higher_priority_is_claimed_first(client, job, worker):
    job()
    urgent = job()
    change(client, urgent, priority=1)
    assert worker().claim(limit=1)[0]["job"]["id"] == urgent


def test_run_now_lets_a_job_start_that_was_to_start_later(client, job, worker):
    id = job(available_at=LATER)
    one = worker()
    assert one.claim() == []
    change(client, id, available_at=None)
    assert [attempt["job"]["id"] for attempt in one.claim()] == [id]


def test_new_tags_decide_which_worker_gets_it(client, job, worker):
    id = job()
    change(client, id, tags=["gpu"])
    assert worker().claim() == []
    assert worker(name="gpu", tags=["script", "gpu"]).claim()[0]["job"]["id"] == id


@pytest.mark.parametrize("is_running", [False, True])
def test_a_job_that_a_worker_holds_is_refused(client, job, worker, is_running):
    id = job()
    worker().hold(running=is_running)
    refused = change(client, id, 409, priority=5)
    assert (refused["code"], refused["state"]) == ("already_started", "RUNNING" if is_running else "CLAIMED")
    assert WorkerJob.objects.get(pk=id).priority == 0


def test_an_ended_job_is_refused(client, job):
    id = job()
    client.post(f"/jobs/{id}/cancel", {})
    assert change(client, id, 409, priority=5)["code"] == "already_started"


def test_a_blocked_step_is_changed_and_keeps_the_values_when_it_waits(begin, do, api):
    run = begin(step("a"), step("b", "a"))
    blocked = WorkerJob.objects.get(execution=run.id, step="b")
    change(api("operator"), blocked.pk, priority=50, timeout_seconds=3)
    do("a")
    blocked.refresh_from_db()
    assert (blocked.state, blocked.priority, blocked.timeout_seconds) == ("PENDING", 50, 3)


def test_only_its_owner_and_operators_may_change_it(client, job, api):
    id = job()
    stranger = api("client")
    assert change(api("viewer"), id, 403, priority=1)["code"] == "wrong_role"
    assert change(stranger, id, 404, priority=1)["code"] == "not_found"
    assert change(api("operator"), id, priority=1)["priority"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"note": "only"}, {"action": SCRIPT}, {"state": "COMPLETED"}, {"key": "k"}, {"name": "n"},
        {"good_until": LATER}, {"priority": 1001}, {"priority": None}, {"priority": "1"}, {"tags": [""]},
        {"tags": None},
        {"timeout_seconds": 0}, {"max_retries": -1}, {"available_at": "soon"}, {"payload": {"secret": 1}},
        {"unknown": 1}, {"priority": 2, "unknown": 1},
    ],
)  # fmt: skip
def test_a_bad_change_is_refused_and_changes_nothing(client, job, changes):
    id = job()
    before = WorkerJob.objects.filter(pk=id).values().get()
    assert change(client, id, 400, **changes)["code"]
    assert WorkerJob.objects.filter(pk=id).values().get() == before


def test_it_cannot_become_available_after_it_is_no_longer_good(client, job):
    id = job(good_until="2089-01-01T00:00:00Z")
    assert "good_until" in change(client, id, 400, available_at=LATER)["detail"]
    assert WorkerJob.objects.get(pk=id).available_at < timezone.now()


def test_a_changed_job_is_still_found_by_its_key(client, job):
    id = job(key="k", priority=1)
    change(client, id, priority=2)
    again = client.post("/jobs", {"action": SCRIPT, "unmatched": "wait", "key": "k", "priority": 1})
    assert (again.status_code, again.json()["id"], again.json()["priority"]) == (200, id, 2)


def test_the_bytes_of_a_changed_payload_are_counted_and_limited(client, job, settings):
    settings.JOBS = {"STORED_BYTES_LIMIT": 1000}
    id = job(payload="x" * 100)
    owner = WorkerJob.objects.get(pk=id).owner_id
    change(client, id, payload="x" * 300)
    counted = sum(StoredBytes.objects.filter(owner=owner).values_list("bytes", flat=True))
    assert counted == stored_bytes.recount(owner)
    assert change(client, id, 429, payload="x" * 1000)["code"] == "quota_exceeded"
    assert WorkerJob.objects.get(pk=id).payload == "x" * 300


def test_no_client_makes_more_sets_of_tags_by_a_change_than_it_may(client, job, settings):
    settings.JOBS = {"WAITING_TAG_SETS_LIMIT": 2}
    ids = [job(), job(), job()]
    change(client, ids[0], tags=["a"])
    assert change(client, ids[1], 429, tags=["b"])["code"] == "too_many_tag_sets"


def test_many_jobs_are_changed_at_once_and_started_ones_are_refused(job, worker, api):
    operator = api("operator")
    started = job()
    worker().hold()
    waiting = [job(), job()]
    wanted = {"operation": "change_job", "ids": [started, *waiting], "note": "n",
              "changes": {"priority": 3, "available_at": LATER, "payload": {"a": 1}}}  # fmt: skip
    key = {"Idempotency-Key": "k"}
    begun = operator.post("/batches", wanted, **key)
    assert begun.status_code == 201, begun.json()
    assert operator.post("/batches", wanted, **key).status_code == 200
    assert (begun.json()["done"], begun.json()["refused"]) == (2, 1)
    for row in WorkerJob.objects.filter(pk__in=waiting):
        assert (row.priority, row.payload, row.available_at.year) == (3, {"a": 1}, 2090)
    assert ServerEvent.objects.filter(action="change_job", reason="n").count() == 2


@pytest.mark.parametrize("more", [{}, {"changes": {}}, {"changes": {"state": "FAILED"}}, {"changes": 1}])
def test_a_bulk_change_without_valid_changes_is_refused(job, api, more):
    wanted = {"operation": "change_job", "ids": [job()], "note": "n", **more}
    assert "changes" in api("operator").post("/batches", wanted).json()["errors"]
    wanted = {"operation": "cancel_job", "ids": wanted["ids"], "note": "n", "changes": {"priority": 1}}
    assert "changes" in api("operator").post("/batches", wanted).json()["errors"]
