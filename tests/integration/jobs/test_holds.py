"""Holds: nothing that they cover starts, until they are released or their time is over."""

import uuid

import pytest
from django.db import transaction

from jobs import in_process
from jobs.errors import OnHold
from jobs.models import Execution, Hold, WorkerJob
from jobs.services import enqueueing, holds, sweep
from jobs.task_templates import JobTemplate, enqueue_jobs
from liveness.models import ServerEvent
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller, Worker
from tests.support.operators import actions

SCRIPT = {"type": "script", "command": "true"}
CALL = {"type": "callable", "path": "shop.mail:confirm"}
pytestmark = pytest.mark.django_db


@pytest.fixture
def hold(api):
    """Return a function that holds work and returns the hold: `hold({"tag": "gpu"})`."""
    caller = api("operator")

    def hold(of, status=201, by=caller, query="", **fields):
        answer = by.post(f"/holds{query}", {"of": of, **fields})
        assert answer.status_code == status, answer.json()
        return answer.json()

    hold.caller = caller
    return hold


@pytest.fixture
def release(api):
    caller = api("operator")

    def release(hold, status=204, by=caller):
        answer = by.call("DELETE", f"/holds/{hold['id']}?note=done")
        assert answer.status_code == status, answer.content

    return release


def claimed(worker):
    return [attempt["job"]["id"] for attempt in worker.claim()]


COVERING = {
    "tag": ({"tag": "gpu"}, {"tags": ["gpu"]}),
    "tag of the action": ({"tag": "script"}, {}),
    "queue": ({"queue": "mail"}, {"tags": ["queue:mail"]}),
    "namespace": ({"namespace": "default"}, {}),
    "type": ({"action": "script"}, {}),
    "path": ({"action": "shop.mail:confirm"}, {"action": CALL}),
    "handler": ({"action": "resize"}, {"action": {"type": "handler", "name": "resize"}}),
    "task of Django": (
        {"action": "shop.tasks.send"},
        {"action": {"type": "handler", "name": "django-task"}, "name": "shop.tasks.send"},
    ),
}
TAGS = ["gpu", "script", "python", "queue:mail", "handler:resize", "handler:django-task", "celery"]


@pytest.mark.parametrize("case", COVERING)
def test_what_a_hold_covers_waits_until_it_is_released(case, hold, release, worker, submit):
    of, fields = COVERING[case]
    one = worker(tags=TAGS)
    before = submit(**fields, unmatched="wait")
    held = hold(of, note="n")
    after = submit(**fields, unmatched="wait")
    assert claimed(one) == []
    release(held)
    assert claimed(one) == [before["id"], after["id"]]


OTHERS = [{"tag": "gpu"}, {"queue": "script"}, {"namespace": "red"}, {"action": "callable"}, {"action": "bash"}]


@pytest.mark.parametrize("of", OTHERS, ids=str)
def test_a_hold_of_other_work_holds_nothing(of, hold, worker, submit):
    hold(of)
    job = submit()
    assert claimed(worker()) == [job["id"]]


def test_jobs_beside_held_ones_are_claimed(hold, worker, submit):
    hold({"tag": "gpu"})
    hold({"action": "shop.mail:confirm"})
    submit(tags=["gpu"], priority=9, unmatched="wait")
    submit(action=CALL, priority=9)
    job = submit()
    assert claimed(worker(tags=TAGS)) == [job["id"]]


def test_running_work_finishes_and_a_lost_job_waits(hold, release, worker, submit, operator):
    job = submit()
    one = worker()
    attempt = one.hold()
    held = hold({"tag": "script"})
    submit.client.post(f"/jobs/{job['id']}/resubmit", {})
    assert claimed(worker(name="two")) == []
    release(held)
    other = submit()
    hold({"tag": "script"})
    assert WorkerJob.objects.get(pk=other["id"]).state == "PENDING"
    assert attempt["job"]["id"] == job["id"]


def test_a_running_job_completes_during_a_hold(hold, worker, submit):
    job = submit()
    one = worker()
    attempt = one.hold()
    hold({"namespace": "default"})
    one.complete(attempt)
    assert WorkerJob.objects.get(pk=job["id"]).state == "COMPLETED"


def test_a_hold_ends_by_itself(hold, worker, submit, clock):
    held = hold({"tag": "script"}, duration_seconds=60, note="an hour")
    job = submit()
    one = worker()
    assert held["ends_at"] is not None and claimed(one) == []
    clock.advance(59)
    one.beat()
    assert claimed(one) == []
    clock.advance(1)
    one.beat()
    assert claimed(one) == [job["id"]]


def test_the_sweep_records_the_end_of_a_hold(hold, clock, api):
    held = hold({"tag": "script"}, duration_seconds=60, note="n")
    clock.advance(60)
    assert sweep.run_sweep()["holds"] == {"ended": 1} and sweep.run_sweep()["holds"] == {}
    assert actions(subject_type="hold", subject_id=held["id"]) == ["create_hold", "hold_ended"]
    assert api("viewer").get("/holds").json()["items"] == []


def test_ended_holds_are_deleted_later(hold, release, clock):
    release(hold({"tag": "x"}))
    clock.advance(holds.KEPT_AFTER_END - 1)
    sweep.run_sweep()
    assert Hold.objects.count() == 1
    clock.advance(2)
    sweep.run_sweep()
    assert Hold.objects.count() == 0


def test_a_hold_is_answered_as_it_is(hold, api, submit, release):
    submit(tags=["gpu"], unmatched="wait")
    held = hold({"tag": "gpu"}, note="new driver", duration_seconds=60)
    assert held["of"] == {"tag": "gpu"} and held["parked"] == 1 and held["mode"] == "pause"
    assert (held["note"], held["by"], held["namespace"]) == ("new driver", "operator:a operator", None)
    submit(tags=["gpu"], unmatched="wait")
    viewer = api("viewer")
    assert viewer.get(f"/holds/{held['id']}").json() == {**held, "parked": 2}
    assert viewer.get("/holds").json() == {"items": [{**held, "parked": 2}], "next": None}
    release(held)
    assert viewer.get(f"/holds/{held['id']}").status_code == 404
    release(held, status=404)


@pytest.mark.parametrize("case", COVERING)
def test_a_hold_counts_the_jobs_that_it_parks(case, hold, submit, worker):
    of, fields = COVERING[case]
    worker(tags=TAGS)
    submit(**fields, unmatched="wait")
    submit(action={"type": "handler", "name": "other"}, unmatched="wait", tags=["other"])
    assert hold(of)["parked"] == (2 if case == "namespace" else 1)


def test_a_repeated_call_returns_the_same_hold(hold, api):
    key = {"Idempotency-Key": "k"}
    first = hold.caller.post("/holds", {"of": {"tag": "x"}}, **key)
    again = hold.caller.post("/holds", {"of": {"tag": "x"}}, **key)
    assert (first.status_code, again.status_code) == (201, 200) and first.json()["id"] == again.json()["id"]
    assert actions(subject_type="hold") == ["create_hold"]


def test_each_action_on_a_hold_is_an_event(hold, release):
    held = hold({"tag": "gpu"}, note="why")
    release(held)
    events = ServerEvent.objects.filter(subject_type="hold").values_list("action", "actor", "reason", "subject_name")
    assert list(events) == [
        ("create_hold", "operator:a operator", "why", "tag gpu"),
        ("release_hold", "operator:a operator", "done", "tag gpu"),
    ]


WRONG = {
    "nothing": {},
    "null": {"of": None},
    "an empty object": {"of": {}},
    "two entries": {"of": {"tag": "a", "queue": "b"}},
    "another kind": {"of": {"server": "a"}},
    "a text": {"of": "tag"},
    "an empty value": {"of": {"tag": ""}},
    "a number": {"of": {"tag": 1}},
    "a control character": {"of": {"tag": "a\nb"}},
    "no id": {"of": {"execution": "x"}},
    "an unknown execution": {"of": {"execution": str(uuid.UUID(int=1))}},
    "an unknown trigger": {"of": {"trigger": str(uuid.UUID(int=1))}},
    "another mode": {"of": {"tag": "a"}, "mode": "kill"},
    "no time": {"of": {"tag": "a"}, "duration_seconds": 0},
    "another field": {"of": {"tag": "a"}, "until": 1},
}


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_hold_is_a_400_with_the_field(case, hold):
    answer = hold.caller.post("/holds", WRONG[case])
    assert answer.status_code == 400
    assert answer.json()["errors"].keys() & {"of", "mode", "duration_seconds", "until"}


def test_only_operators_hold_and_release(hold, api):
    held = hold({"tag": "a"})
    for role in ("client", "viewer", "worker"):
        assert api(role).post("/holds", {"of": {"tag": "a"}}).status_code == 403
        assert api(role).call("DELETE", f"/holds/{held['id']}").status_code == 403
    assert api("client").get("/holds").status_code == 403


@pytest.fixture
def red(db, clock):
    """Return callers of the namespace red by role."""
    return lambda role: Caller(tokens.create_token(f"a {role}", role, namespace="red"))


def test_a_hold_of_a_namespace_holds_its_own_work_alone(hold, red, worker, submit):
    job = submit()
    reds = red("client").post("/jobs", {"action": SCRIPT}).json()
    own = Worker.register(red("worker")).running()
    held = hold({"tag": "script"}, by=red("operator"))
    assert held["namespace"] == "red"
    assert claimed(worker()) == [job["id"]] and claimed(own) == []
    assert red("viewer").get(f"/jobs/{reds['id']}").json()["parked_by"] == {"hold": held["id"]}


def test_a_hold_of_the_default_namespace_counts_for_all(hold, red, release):
    red("client").post("/jobs", {"action": SCRIPT})
    held = hold({"tag": "script"})
    assert claimed(Worker.register(red("worker")).running()) == []
    assert red("viewer").get("/holds").json()["items"][0]["id"] == held["id"]
    release(held, status=403, by=red("operator"))


def test_a_hold_of_another_namespace_is_refused(hold, red):
    assert hold({"namespace": "blue"}, status=403, by=red("operator"))["code"] == "wrong_namespace"


def test_a_hold_of_another_namespace_is_not_there(hold, red, release):
    held = hold({"tag": "a"}, by=red("operator"))
    blue = Caller(tokens.create_token("blue", "operator", namespace="blue"))
    assert blue.get("/holds").json()["items"] == []
    release(held, status=404, by=blue)


def test_a_held_job_names_its_hold(hold, release, submit, worker, api):
    worker()
    job = submit()
    held = hold({"action": "script"}, note="why", duration_seconds=60)
    viewer = api("viewer")
    for answer in (viewer.get(f"/jobs/{job['id']}").json(), viewer.get("/jobs").json()["items"][0]):
        assert answer["parked_by"] == {"hold": held["id"]}
    waiting_for = viewer.get(f"/jobs/{job['id']}/placement").json()["waiting_for"]
    assert waiting_for == {"what": "hold", "hold": held["id"], "until": held["ends_at"]}
    release(held)
    assert viewer.get(f"/jobs/{job['id']}").json()["parked_by"] is None
    assert viewer.get(f"/jobs/{job['id']}/placement").json()["waiting_for"] is None


def test_a_new_job_on_hold_names_its_hold(hold, submit, worker):
    worker()
    held = hold({"tag": "script"})
    assert submit()["parked_by"] == {"hold": held["id"]}


def test_a_job_that_is_not_on_hold_has_no_hold(hold, submit, worker):
    worker()
    hold({"tag": "gpu"})
    assert submit()["parked_by"] is None


def test_the_queue_of_held_jobs_is_parked(hold, submit, worker, api):
    worker(tags=TAGS)
    submit()
    submit(action=CALL)
    submit(action={**CALL, "path": "shop.mail:other"})
    hold({"tag": "script"})
    hold({"action": "shop.mail:confirm"})
    found = {queue["tags"][0]: queue for queue in api("viewer").get("/queues").json()["items"]}
    assert (found["script"]["waiting"], found["script"]["parked"]) == (0, 1)
    assert (found["python"]["waiting"], found["python"]["parked"]) == (1, 1)


@pytest.mark.parametrize("of", [{"tag": "gpu"}, {"action": "script"}], ids=str)
def test_a_held_job_does_not_fail_for_lack_of_a_worker(of, hold, release, submit, worker, clock, settings):
    settings.JOBS = {"UNMATCHED_AFTER": 60}
    one = worker(tags=["python"])
    job = submit(tags=["gpu"], unmatched="wait")
    WorkerJob.objects.update(unmatched="fail")
    held = hold(of)
    clock.advance(300)
    one.beat()
    sweep.run_sweep()
    assert WorkerJob.objects.get(pk=job["id"]).state == "PENDING"
    release(held)
    clock.advance(59)
    one.beat()
    sweep.run_sweep()
    assert WorkerJob.objects.get(pk=job["id"]).state == "PENDING"
    clock.advance(2)
    one.beat()
    sweep.run_sweep()
    assert WorkerJob.objects.get(pk=job["id"]).error["code"] == "NO_MATCHING_WORKER"


def test_a_held_job_has_no_flag(hold, submit, api):
    job = submit(tags=["none"], unmatched="wait")
    assert api("viewer").get(f"/jobs/{job['id']}").json()["flags"] == ["waits_for_tags"]
    hold({"tag": "none"})
    assert api("viewer").get(f"/jobs/{job['id']}").json()["flags"] == []


# New submissions


@pytest.mark.parametrize("case", COVERING)
def test_a_refusing_hold_refuses_new_jobs_with_its_note(case, hold, release, worker, submit):
    of, fields = COVERING[case]
    worker(tags=TAGS)
    held = hold(of, mode="refuse", note="the mail server is down")
    body = {"action": SCRIPT, "unmatched": "wait", **fields}
    for caller in (submit.client,):
        answer = caller.post("/jobs", body)
        assert (answer.status_code, answer.json()["code"], answer.json()["hold"]) == (409, "on_hold", held["id"])
        assert "the mail server is down" in answer.json()["detail"]
    release(held)
    assert submit.client.post("/jobs", body).status_code == 201


def test_a_list_with_a_refused_job_is_refused_whole(hold, worker, submit):
    worker(tags=TAGS)
    hold({"action": "shop.mail:confirm"}, mode="refuse")
    answer = submit.client.post("/jobs", [{"action": SCRIPT}, {"action": CALL}])
    assert answer.status_code == 409 and WorkerJob.objects.count() == 0


def test_a_refusing_hold_also_pauses_what_waits(hold, worker, submit):
    submit()
    hold({"tag": "script"}, mode="refuse")
    assert claimed(worker()) == []


def test_retries_and_resubmissions_are_not_refused(hold, worker, submit, release):
    job = submit(max_retries=1)
    one = worker()
    attempt = one.hold()
    held = hold({"tag": "script"}, mode="refuse")
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "X", "message": "m"}})
    assert WorkerJob.objects.get(pk=job["id"]).state == "PENDING" and claimed(one) == []
    submit.client.post(f"/jobs/{job['id']}/cancel", {})
    again = submit.client.post(f"/jobs/{job['id']}/resubmit", {})
    assert again.status_code == 201 and claimed(one) == []
    release(held)
    assert claimed(one) == [again.json()["id"]]


def test_a_repeated_submission_returns_its_job_during_a_refusing_hold(hold, submit):
    job = submit(key="k")
    hold({"tag": "script"}, mode="refuse")
    answer = submit.client.post("/jobs", {"action": SCRIPT, "key": "k"})
    assert (answer.status_code, answer.json()["id"]) == (200, job["id"])


def test_an_execution_is_refused_for_one_of_its_steps(hold, submit):
    hold({"action": "shop.mail:confirm"}, mode="refuse")
    inner = {"type": "execution", "name": "inner", "steps": [step("s", action=CALL)]}
    for definition in (
        {"name": "x", "steps": [step("a"), step("b", "a", action=CALL)]},
        {"name": "x", "steps": [step("a", action=inner)]},
    ):
        assert submit.client.post("/executions", definition).json()["code"] == "on_hold"
    assert submit.client.post("/jobs", {"action": inner}).json()["code"] == "on_hold"
    assert Execution.objects.count() == WorkerJob.objects.count() == 0
    assert submit.client.post("/executions", {"name": "x", "steps": [step("a")]}).status_code == 201


def test_jobs_of_the_own_code_are_refused_too(hold, db):
    hold({"tag": "python"}, mode="refuse", note="why")
    with pytest.raises(OnHold, match="why"):
        in_process.submit(CALL)
    template = JobTemplate.build({"action": CALL, "unmatched": "wait"})
    assert enqueueing.needs_no_check(template.fields)
    with pytest.raises(OnHold, match="why"), transaction.atomic():
        enqueue_jobs([(template, {})])
    assert WorkerJob.objects.count() == 0


def test_other_holds_let_the_own_code_submit(hold, db):
    hold({"tag": "python"})
    hold({"tag": "of others"}, mode="refuse")
    template = JobTemplate.build({"action": CALL, "unmatched": "wait"})
    assert len(enqueue_jobs([(template, {}), (template, {})])) == 2
    assert len(enqueue_jobs([(template, {})])) == 1


def test_a_hold_that_begins_while_the_own_code_submits_refuses_its_job(hold, db, monkeypatch):
    hold({"tag": "python"}, mode="refuse", note="why")
    looks = [lambda *_: None, holds.refuse_jobs_on_hold]  # at the first look the hold has not begun
    monkeypatch.setattr(holds, "refuse_jobs_on_hold", lambda *arguments: looks.pop(0)(*arguments))
    template = JobTemplate.build({"action": CALL, "unmatched": "wait"})
    with pytest.raises(OnHold, match="why"):
        enqueue_jobs([(template, {})])
    assert WorkerJob.objects.count() == 0


# Executions and triggers


def test_no_step_of_a_held_execution_starts(hold, release, worker, submit):
    one = worker(max_concurrent=10)
    body = {"name": "x", "steps": [step("a"), step("b", "a")]}
    run, other = (submit.client.post("/executions", body).json() for _ in range(2))
    first = next(attempt for attempt in one.claim(1))
    held_one = first["job"]["execution"]
    held = hold({"execution": held_one})
    one.start(first)
    one.complete(first)
    assert {attempt["job"]["execution"] for attempt in one.claim()} == {run["id"], other["id"]} - {held_one}
    release(held)
    assert [attempt["job"]["step"] for attempt in one.claim()] == ["b"]


def test_the_children_of_a_held_execution_are_held(hold, release, worker, submit):
    one = worker()
    inner = {"type": "execution", "name": "inner", "steps": [step("s")]}
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a", action=inner)]}).json()
    held = hold({"execution": run["id"]})
    assert held["parked"] == 1 and claimed(one) == []
    release(held)
    assert len(claimed(one)) == 1


def test_the_timeout_of_a_held_execution_stands_still(hold, release, submit, clock, worker):
    one = worker()
    body = {"name": "x", "steps": [step("a")], "timeout_seconds": 100}
    run = submit.client.post("/executions", body).json()

    def pass_time(seconds):
        clock.advance(seconds)
        one.beat()
        sweep.run_sweep()
        return Execution.objects.get(pk=run["id"]).state

    pass_time(40)
    held = hold({"execution": run["id"]})
    assert pass_time(1000) == "RUNNING"
    release(held)
    assert pass_time(59) == "RUNNING"
    assert pass_time(2) != "RUNNING"


TRIGGER = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": {"name": "x", "steps": [step("a")]}}


def test_a_held_trigger_is_not_evaluated(hold, release, api, clock):
    from jobs.services.evaluations import evaluate_due_triggers

    operator = api("operator")
    trigger = operator.post("/triggers", TRIGGER).json()
    held = hold({"trigger": trigger["id"]}, note="why")
    clock.advance(61)
    assert evaluate_due_triggers() == 0
    refused = operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "on_hold")
    assert operator.call("PATCH", f"/triggers/{trigger['id']}", {"priority": 1}).status_code == 200
    assert WorkerJob.objects.count() == 0
    release(held)
    clock.advance(61)
    assert evaluate_due_triggers() == 1


def test_a_hold_of_a_limit_key_holds_the_jobs_with_this_key(hold, release, worker, submit):
    one = worker()
    job, other = submit(limits=["stripe"]), submit(limits=["paypal"])
    held = hold({"limit": "stripe"})
    assert held["parked"] == 1 and claimed(one) == [other["id"]]
    release(held)
    assert claimed(one) == [job["id"]]
    hold({"limit": "stripe"}, mode="refuse")
    assert submit.client.post("/jobs", {"action": SCRIPT, "limits": ["stripe"]}).json()["code"] == "on_hold"
