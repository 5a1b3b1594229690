"""Claims: a worker gets jobs that it may run, in order, and no more than it has room for."""

import uuid
from datetime import datetime, timedelta, timezone

import pytest
from django.db import connection

from jobs.models import Attempt, WorkerJob
from liveness.models import Server
from tests.support.http import Worker
from tests.support.transitions import put


def script(**fields):
    return {"action": {"type": "script", "command": "true"}, **fields}


def jobs(attempts):
    return [attempt["job"]["id"] for attempt in attempts]


def refusal(worker, **fields):
    answer = worker.post(f"/servers/{worker.id}/claims", {"limit": 1, **fields})
    return answer.status_code, answer.json()["code"]


def test_a_claim_hands_over_all_that_is_needed_to_run(worker, submit):
    action = {"type": "callable", "path": "a.b:c"}
    job = submit(action=action, payload={"x": [1, None]}, timeout_seconds=60)
    (attempt,) = worker().claim()
    assert attempt == {
        "id": attempt["id"],
        "number": 1,
        "job": {
            "id": job["id"], "kind": "TASK", "action": action, "payload": {"x": [1, None]}, "payload_from": None,
            "timeout_seconds": 60, "execution": None, "step": None, "checkpoint": None, "traceparent": None,
            "former_traceparent": None, "isolation": None, "worker_slots": 1,
        },
    }  # fmt: skip
    job_now = submit.client.get(f"/jobs/{job['id']}").json()
    assert (job_now["state"], job_now["attempts"][0]["id"], job_now["attempts"][0]["state"]) == (
        "CLAIMED", attempt["id"], "CLAIMED",
    )  # fmt: skip


def test_priority_comes_first_then_age(worker, submit):
    low, old, new, high = (submit(priority=priority)["id"] for priority in (-1, 0, 0, 5))
    assert jobs(worker().claim()) == [high, old, new, low]


def test_priority_and_age_hold_across_sets_of_tags(worker, submit):
    one = submit(tags=["a"])["id"]
    two = submit(tags=["b"])["id"]
    three = submit(tags=["a"])["id"]
    four = submit(tags=["b"], priority=1)["id"]
    taker = worker(tags=["a", "b", "script"])
    assert [jobs(taker.claim(limit=1)) for _ in range(4)] == [[four], [one], [two], [three]]


def test_jobs_of_one_list_are_claimed_in_its_order(worker, submit):
    items = submit.client.post("/jobs", [script() for _ in range(100)]).json()["items"]
    assert jobs(worker(max_concurrent=100).claim(limit=100)) == [item["id"] for item in items]


@pytest.mark.parametrize(
    ("has", "needs", "given"),
    [
        (["script"], [], True),
        (["script", "gpu"], ["gpu"], True),
        (["script", "gpu", "x"], ["gpu", "x"], True),
        (["script", "gpu"], ["gpu", "x"], False),
        (["gpu"], ["gpu"], False),
        ([], [], False),
        (["SCRIPT"], [], False),
    ],
)
def test_a_worker_needs_every_required_tag(worker, submit, has, needs, given):
    submit(tags=needs)
    assert len(worker(tags=has).claim()) == given


@pytest.mark.parametrize(
    ("action", "tags"),
    [
        ({"type": "script", "command": "true"}, ["script"]),
        ({"type": "script", "command": ["true"], "runner": "local"}, ["script"]),
        ({"type": "script", "command": "true", "runner": "docker", "image": "x"}, ["docker", "script"]),
        ({"type": "script", "command": "true", "runner": "pod", "image": "x"}, ["kubernetes", "script"]),
        ({"type": "docker", "image": "x"}, ["docker"]),
        ({"type": "pod", "image": "x", "command": ["a"]}, ["kubernetes"]),
        ({"type": "callable", "path": "package.module:function"}, ["python"]),
        ({"type": "handler", "name": "invoice"}, ["handler:invoice"]),
        ({"type": "handler", "name": "x" * 92}, ["handler:" + "x" * 92]),
    ],
    ids=lambda value: value["type"] + value.get("runner", "") if isinstance(value, dict) else "",
)
def test_an_action_needs_its_tags_beside_those_of_the_job(worker, submit, action, tags):
    job = submit(action=action, tags=["x"])
    assert (job["tags"], job["required_tags"]) == (["x"], sorted(["x", *tags]))
    assert worker(name="without", tags=["x", *tags[1:]]).claim() == []
    assert jobs(worker(name="with", tags=["x", *tags]).claim()) == [job["id"]]


def test_a_job_is_not_claimed_before_it_is_available(worker, submit, clock):
    with connection.cursor() as cursor:
        cursor.execute("select test_clock.clock_timestamp()")
        now = cursor.fetchone()[0].astimezone(timezone(timedelta(hours=2)))
    job = submit(available_at=(now + timedelta(seconds=60)).isoformat())
    assert datetime.fromisoformat(job["available_at"]) == now + timedelta(seconds=60)
    one = worker()
    clock.advance(59.999)
    one.beat()
    assert one.claim() == []
    clock.advance(0.001)
    assert jobs(one.claim()) == [job["id"]]


def test_a_worker_gets_no_more_than_it_has_room_for(worker, submit):
    for _ in range(5):
        submit()
    one = worker(max_concurrent=2)
    first, second = one.claim(limit=10)
    assert one.claim() == []
    one.start(first), one.complete(first)
    assert len(one.claim()) == 1
    one.report({"attempt": second["id"], "event": "RELEASED", "reason": "no"})
    assert len(one.claim(limit=1)) == 1
    assert one.claim() == []


def test_claims_ahead_hold_no_slot_and_never_exceed_their_number(worker, submit):
    for _ in range(12):
        submit()
    one = worker(max_concurrent=1)
    held = one.claim(limit=1, ahead=5)
    assert len(held) == 6
    assert one.claim(limit=1, ahead=5) == one.claim(limit=1) == []
    assert one.start(held[0])["accepted"] and one.complete(held[0])["accepted"]
    assert len(one.claim(limit=0, ahead=5)) == 1, "one has ended"
    for attempt in held[1:]:
        assert one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "behind a slow task"})[0][
            "accepted"
        ]
    jobs = [submit.client.get(f"/jobs/{attempt['job']['id']}").json() for attempt in held[1:]]
    assert {(job["state"], job["resubmissions"]) for job in jobs} == {("PENDING", 0)}


def test_a_started_claim_ahead_that_goes_back_does_not_count_as_a_loss(worker, submit):
    submit(on_worker_lost="FAIL")
    one = worker()
    attempt = one.hold()
    assert one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not begun"})[0]["accepted"]
    job = submit.client.get(f"/jobs/{attempt['job']['id']}").json()
    assert (job["state"], job["resubmissions"], job["retries"]) == ("PENDING", 0, 0)


def test_an_attempt_that_goes_back_before_its_code_began_was_never_started(worker, submit):
    submit(on_worker_lost="FAIL", max_retries=1)
    one = worker()
    attempt = one.hold()
    release = {"attempt": attempt["id"], "event": "RELEASED", "reason": "not begun", "begun": False}
    assert [one.report(release)[0][field] for field in ("accepted", "state")] == [True, "RELEASED"]
    assert one.report(release)[0]["replayed"]
    job = submit.client.get(f"/jobs/{attempt['job']['id']}").json()
    assert (job["state"], job["resubmissions"], job["retries"]) == ("PENDING", 0, 0)
    assert [(was["state"], was["started_at"]) for was in job["attempts"]] == [("RELEASED", None)]
    assert one.hold()["number"] == 2


def test_code_that_had_begun_and_goes_back_was_interrupted(worker, submit):
    submit()
    one = worker()
    release = {"attempt": one.hold()["id"], "event": "RELEASED", "reason": "fenced", "begun": True}
    assert one.report(release)[0]["state"] == "RESUBMITTED"


@pytest.mark.parametrize(("max_concurrent", "limit"), [(0, 5), (5, 0)])
def test_no_room_or_no_wish_is_an_empty_list(worker, submit, max_concurrent, limit):
    submit()
    assert worker(max_concurrent=max_concurrent).claim(limit=limit) == []


def test_a_claim_without_a_limit_gets_one_job(worker, submit):
    submit(), submit()
    one = worker()
    assert len(one.post(f"/servers/{one.id}/claims", {}).json()["attempts"]) == 1


def test_a_repeated_claim_returns_the_same_attempts(worker, submit):
    for _ in range(4):
        submit()
    one, other = worker(name="one", max_concurrent=2), worker(name="other")
    request = str(uuid.uuid4())
    first = one.claim(limit=2, request_id=request)
    assert one.claim(limit=2, request_id=request) == first
    assert one.claim(limit=10, request_id=request) == first
    assert Attempt.objects.count() == 2
    assert one.claim(limit=1, request_id=str(uuid.uuid4())) == []  # the worker is full
    assert not set(jobs(other.claim(limit=1, request_id=request))) & set(jobs(first))


def test_a_claim_that_comes_again_after_its_attempts_have_ended_takes_nothing_new(worker, submit):
    submit()
    one = worker()
    request = str(uuid.uuid4())
    (attempt,) = one.claim(limit=1, request_id=request)
    one.start(attempt), one.complete(attempt)
    submit()
    assert one.claim(limit=1, request_id=request) in ([], [attempt])
    assert WorkerJob.objects.filter(state="PENDING").count() == 1


@pytest.mark.parametrize(
    ("way", "code"),
    [
        ({"type": "EXECUTOR"}, "not_a_worker"),
        ({"state": "CREATED"}, "server_not_running"),
        ({"state": "ERROR"}, "server_not_running"),
        ({"state": "TERMINATING"}, "server_not_running"),
        ({"state": "TERMINATED_GRACEFULLY"}, "server_not_running"),
        ({"state": "NOT_RUNNING"}, "server_not_running"),
        ({"state": "INACTIVE"}, "server_not_running"),
        ({"state": "DISCONNECTED"}, "server_disconnected"),
        ({"state": "MAINTENANCE"}, "maintenance"),
        ({"cordoned_by": "operator:ann", "cordon_reason": "a new disk"}, "server_cordoned"),
        ({"last_heartbeat_at": None}, "heartbeat_stale"),
    ],
    ids=str,
)
def test_a_server_that_may_not_have_work_gets_the_reason_and_no_job(api, submit, way, code):
    submit()
    registered = Worker.register(api("worker"), type=way.get("type", "WORKER"))
    put(Server.objects.get(pk=registered.id), way.get("state", "RUNNING"))
    if code not in ("server_not_running", "server_disconnected"):
        registered.beat()
    Server.objects.update(**({} if "type" in way else way))
    assert refusal(registered) == (409, code)
    assert not Attempt.objects.exists()
    assert WorkerJob.objects.get().state == "PENDING"


def test_a_worker_that_cordoned_itself_gets_no_work_until_it_ends_that(worker, submit):
    submit()
    one = worker()
    one.beat(schedulable=False, reason="disk full")
    assert refusal(one) == (409, "server_cordoned")
    one.beat(schedulable=True)
    assert len(one.claim()) == 1


@pytest.mark.parametrize(
    ("multiplier", "interval", "limit"), [(3, 3, 9), (3, 5, 15), (2, 3, 6)], ids=["default", "own interval", "setting"]
)
def test_a_heartbeat_at_the_limit_of_freshness_is_stale_and_just_before_it_is_not(
    worker, submit, clock, settings, multiplier, interval, limit
):
    settings.LIVENESS = {"STALENESS_MULTIPLIER": multiplier}
    submit(), submit()
    one = worker(config={"heartbeat_interval_seconds": interval})
    clock.advance(limit - 0.001)
    assert len(one.claim(limit=1)) == 1
    clock.advance(0.001)
    assert refusal(one) == (409, "heartbeat_stale")
    one.beat()
    assert len(one.claim(limit=1)) == 1


@pytest.mark.parametrize("running", [True, False])
def test_a_job_released_as_not_allowed_is_not_given_to_that_server_again(worker, submit, running):
    job = submit()
    one, other = worker(name="one"), worker(name="other")
    attempt = one.hold(running=running)
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
    assert one.claim() == []
    assert jobs(other.claim()) == [job["id"]]


@pytest.mark.parametrize("state", ["NOT_RUNNING", "INACTIVE"])
def test_a_claim_whose_answer_was_lost_is_refused_once_its_server_has_ended(worker, submit, state):
    submit()
    one, request = worker(), str(uuid.uuid4())
    one.claim(limit=1, request_id=request)
    put(Server.objects.get(pk=one.id), state)
    assert refusal(one, request_id=request) == (409, "server_not_running")
