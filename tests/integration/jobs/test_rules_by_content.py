"""Rules by action, tag and namespace limit jobs that never named them."""

import pytest

from jobs import in_process
from jobs.models import LimitRecheck, LimitSlot, WorkerJob
from jobs.services import enqueueing, limit_rules, limits, sweep
from jobs.task_templates import JobTemplate, enqueue_jobs
from liveness.models import Tally
from liveness.services import tokens
from tests.support.celery_tasks import task
from tests.support.executions import step
from tests.support.http import Caller, Worker

SCRIPT = {"type": "script", "command": "true"}
CALL = {"type": "callable", "path": "shop.mail:confirm"}
TAGS = ["gpu", "script", "python", "queue:mail", "handler:resize", "handler:django-task", "celery"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled")]


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def rule(operator):
    def rule(pattern, status=201, caller=operator, **fields):
        answer = caller.call("put", f"/limits/{pattern}", fields)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return rule


@pytest.fixture
def jobs(submit):
    """Return a function that submits jobs that name no limits, and returns their ids."""
    return lambda number=1, **fields: [submit(unmatched="wait", **fields)["id"] for _ in range(number)]


@pytest.fixture
def parked(operator):
    return lambda *ids: [(operator.get(f"/jobs/{job}").json()["parked_by"] or {}).get("limit") for job in ids]


def claimed(worker):
    return [attempt["job"]["id"] for attempt in worker.claim(limit=20)]


def run(worker, attempt):
    assert worker.start(attempt)["accepted"]
    return worker.complete(attempt)


COVERING = {
    "tag:gpu": {"tags": ["gpu"]},
    "tag:script": {},
    "tag:queue:mail": {"tags": ["queue:mail"]},
    "tag:queue:*": {"tags": ["queue:mail"]},
    "namespace:default": {},
    "namespace:*": {},
    "action:script": {},
    "action:shop.mail:confirm": {"action": CALL},
    "action:shop.mail:*": {"action": CALL},
    "action:resize": {"action": {"type": "handler", "name": "resize"}},
    "action:shop.tasks.send": {"action": {"type": "handler", "name": "django-task"}, "name": "shop.tasks.send"},
}


@pytest.mark.parametrize("pattern", COVERING)
def test_a_rule_limits_jobs_that_are_submitted_after_it(pattern, rule, jobs, worker, parked):
    rule(pattern, running=2)
    first, second, third = jobs(3, **COVERING[pattern])
    one = worker(tags=TAGS, max_concurrent=10)
    assert parked(first, second) == [None, None]
    assert parked(third) != [None]
    attempts = one.claim(limit=10)
    assert [attempt["job"]["id"] for attempt in attempts] == [first, second]
    run(one, attempts[0])
    assert claimed(one) == [third]


@pytest.mark.parametrize("pattern", COVERING)
def test_a_new_rule_limits_jobs_that_wait_already(pattern, rule, jobs, worker, parked):
    waiting = jobs(3, **COVERING[pattern])
    rule(pattern, running=1)
    assert [bool(limit) for limit in parked(*waiting)] == [False, True, True]
    assert claimed(worker(tags=TAGS, max_concurrent=10)) == waiting[:1]


@pytest.mark.parametrize("pattern", COVERING)
def test_a_new_rule_counts_what_runs_already(pattern, rule, jobs, worker):
    jobs(2, **COVERING[pattern])
    one = worker(tags=TAGS, max_concurrent=10)
    attempt, other = one.claim(limit=10)
    rule(pattern, running=2)
    rule(pattern, running=2, status=200)
    (third,) = jobs(**COVERING[pattern])
    assert claimed(one) == []
    run(one, attempt)
    assert claimed(one) == [third]
    run(one, other)
    assert LimitSlot.objects.count() == 1
    assert sweep.run_sweep()["limits"] == {}


@pytest.mark.parametrize("pattern", ["tag:other", "namespace:red", "action:callable", "action:true", "tag:scr"])
def test_a_rule_about_other_jobs_limits_nothing(pattern, rule, jobs, worker):
    before = jobs(2)
    rule(pattern, running=0)
    after = jobs(2)
    assert claimed(worker(max_concurrent=10)) == before + after
    assert WorkerJob.objects.filter(limits__isnull=False).count() == LimitSlot.objects.count() == 0


def test_jobs_beside_limited_ones_are_claimed(rule, jobs, worker):
    rule("tag:gpu", running=0)
    jobs(3, tags=["gpu"], priority=9)
    (plain,) = jobs()
    assert claimed(worker(tags=TAGS)) == [plain]


def test_a_job_shows_only_the_keys_that_it_named(rule, jobs, operator, worker):
    rule("tag:script", running=1)
    named, plain = jobs(limits={"a": 2}) + jobs()
    assert operator.get(f"/jobs/{named}").json()["limits"] == {"a": 2}
    assert operator.get(f"/jobs/{plain}").json()["limits"] == {}
    assert operator.get(f"/jobs/{plain}").json()["parked_by"] == {"limit": "tag:script"}
    assert claimed(worker(max_concurrent=10)) == [named]
    assert {slot.key: slot.amount for slot in LimitSlot.objects.all()} == {"a": 2, "tag:script": 1}


def test_the_submission_answers_that_a_rule_parks_the_job(rule, submit, worker):
    worker()
    rule("tag:script", running=0)
    assert submit()["parked_by"] == {"limit": "tag:script"}


def test_keys_and_rules_must_all_have_room(rule, jobs, worker, parked):
    rule("a", running=1)
    rule("tag:script", running=2)
    one = worker(max_concurrent=10)
    first, second = jobs(2, limits=["a"])
    (plain,) = jobs()
    attempts = one.claim(limit=10)
    assert [attempt["job"]["id"] for attempt in attempts] == [first, plain]
    run(one, attempts[1])
    assert claimed(one) == []
    run(one, attempts[0])
    assert claimed(one) == [second]


def test_steps_of_executions_are_limited(rule, begin, worker):
    rule("tag:script", running=1)
    begin(step("a"), step("b"), step("c", "a", "b"))
    one = worker(max_concurrent=10)
    for _ in range(3):
        (attempt,) = one.claim(limit=10)
        run(one, attempt)
    assert LimitSlot.objects.count() == 0


def test_steps_that_were_stored_before_the_rule_are_limited(rule, begin, worker):
    begin(step("a"), step("b", "a"), step("c", "a"))
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=10)
    rule("action:script", running=1)
    run(one, attempt)
    for _ in range(2):
        (attempt,) = one.claim(limit=10)
        run(one, attempt)
    assert LimitSlot.objects.count() == 0


def test_a_retry_waits_for_a_slot(rule, jobs, worker):
    rule("tag:script", running=1)
    first, _ = jobs(max_retries=1) + jobs()
    one = worker(max_concurrent=10)
    held = one.hold()
    one.report({"attempt": held["id"], "event": "FAILED", "error": {"code": "x"}})
    assert claimed(one) == [first]
    one.beat()
    assert claimed(one) == []
    assert LimitSlot.objects.count() == 1


def test_a_recovered_job_waits_for_the_slot_of_its_earlier_attempt(rule, jobs, worker, operator):
    (first,) = jobs()
    one, two = worker(), worker(name="two")
    held = one.hold()
    rule("tag:script", running=1)
    operator.post(f"/jobs/{first}/resubmit", {"note": "x"})
    assert claimed(two) == []
    one.beat(stopped=[held["id"]])
    assert claimed(two) == [first]
    assert LimitSlot.objects.count() == 1


def test_a_new_rule_counts_code_that_may_still_run(rule, jobs, worker, operator):
    (first,) = jobs(on_worker_lost="FAIL")
    one, two = worker(), worker(name="two")
    held = one.hold()
    operator.post(f"/jobs/{first}/fail", {"note": "x"})
    rule("tag:script", running=1)
    (second,) = jobs()
    assert claimed(two) == []
    one.beat(stopped=[held["id"]])
    assert claimed(two) == [second]


def test_jobs_of_triggers_are_limited(rule, operator, worker):
    rule("namespace:default", running=1)
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT, "execution": {"name": "f", "steps": [step("s")]}}
    trigger = operator.post("/triggers", body).json()["id"]
    assert operator.post(f"/triggers/{trigger}/evaluate", {}).status_code < 300
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=10)
    assert attempt["job"]["kind"] == "TRIGGER"
    assert LimitSlot.objects.count() == 1


def test_jobs_of_the_projects_code_are_limited(rule, worker, parked):
    rule("tag:script", running=1)
    first, second = (str(in_process.submit(SCRIPT, unmatched="wait")) for _ in "ab")
    assert parked(first, second) == [None, "tag:script"]
    assert claimed(worker(max_concurrent=10)) == [first]


def test_tasks_of_the_project_that_are_enqueued_together_are_limited(rule, worker, parked):
    rule("action:shop.tasks.send", running=1)
    action = {"type": "handler", "name": "django-task"}
    template = JobTemplate.build({"action": action, "name": "shop.tasks.send", "unmatched": "wait"})
    assert enqueueing.needs_no_check(template.fields)
    first, second = map(str, enqueue_jobs([(template, {}), (template, {})]))
    [third] = map(str, enqueue_jobs([(template, {})]))
    assert parked(first, second, third) == [None, "action:shop.tasks.send", "action:shop.tasks.send"]
    assert claimed(worker(tags=TAGS, max_concurrent=10)) == [first]


def test_celery_tasks_are_ignored(rule, celery_worker):
    rule("namespace:default", running=0)
    celery_worker().say(task())
    rule("tag:celery:*", running=0)
    assert LimitSlot.objects.count() == 0


def test_executions_themselves_take_no_slot(rule, begin, worker):
    rule("namespace:default", running=1)
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    begin(step("k", action=child))
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=10)
    run(one, attempt)
    assert not WorkerJob.objects.exclude(state="COMPLETED").exists()


def test_starts_are_limited_as_those_of_keys(rule, jobs, worker, clock):
    rule("tag:script", starts=2, per_seconds=10)
    jobs(5)
    one = worker(max_concurrent=10)
    assert len(claimed(one)) == 2
    clock.advance(5)
    one.beat()
    limits.settle_left()
    assert len(claimed(one)) == 1


def test_a_rule_that_is_deleted_limits_nothing_any_more(rule, jobs, worker, operator, parked):
    rule("tag:script", running=1)
    waiting = jobs(3)
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=10)
    operator.call("delete", "/limits/tag:script")
    assert parked(*waiting[1:]) == [None, None]
    assert claimed(one) == waiting[1:]
    run(one, attempt)
    assert LimitSlot.objects.filter(attempt_id=attempt["id"]).count() == 0


def test_a_rule_that_comes_again_counts_once(rule, jobs, worker, operator):
    rule("tag:script", running=3)
    jobs(2)
    one = worker(max_concurrent=10)
    assert len(claimed(one)) == 2
    operator.call("delete", "/limits/tag:script")
    rule("tag:script", running=3)
    jobs(2)
    assert len(claimed(one)) == 1
    assert LimitSlot.objects.filter(key="tag:script").count() == 3


def test_a_rule_of_a_namespace_counts_for_its_own_jobs(rule, jobs, worker):
    red = Caller(tokens.create_token("red", "operator", namespace="red"))
    client = Caller(tokens.create_token("red client", "client", namespace="red"))
    rule("tag:script", running=1, caller=red)
    plain = jobs(2)
    for _ in range(2):
        client.post("/jobs", {"action": SCRIPT, "unmatched": "wait"})
    assert claimed(worker(max_concurrent=10)) == plain
    in_red = Worker.register(Caller(tokens.create_token("red worker", "worker", namespace="red"))).running()
    assert len(claimed(in_red)) == 1


def test_changed_tags_change_the_rules_that_count(rule, jobs, operator, worker, parked):
    rule("tag:gpu", running=0)
    on_gpu, plain = jobs(tags=["gpu"]) + jobs()
    operator.call("patch", f"/jobs/{on_gpu}", {"tags": []})
    operator.call("patch", f"/jobs/{plain}", {"tags": ["gpu"]})
    assert parked(on_gpu, plain) == [None, "tag:gpu"]
    assert claimed(worker(tags=TAGS, max_concurrent=10)) == [on_gpu]


def test_changed_limits_keep_the_rules_that_count(rule, jobs, operator, parked):
    rule("tag:script", running=0)
    (job,) = jobs(limits=["a"])
    changed = operator.call("patch", f"/jobs/{job}", {"limits": ["b"]}).json()
    assert (changed["limits"], changed["parked_by"]) == ({"b": 1}, {"limit": "tag:script"})
    changed = operator.call("patch", f"/jobs/{job}", {"limits": []}).json()
    assert (changed["limits"], changed["parked_by"]) == ({}, {"limit": "tag:script"})


def test_a_cancelled_job_passes_its_turn_on(rule, jobs, operator, parked):
    rule("tag:script", running=1)
    first, second = jobs(2)
    operator.post(f"/jobs/{first}/cancel", {})
    assert parked(second) == [None]


def test_a_job_that_is_submitted_again_is_limited(rule, jobs, operator, worker):
    rule("tag:script", running=0)
    (job,) = jobs()
    operator.post(f"/jobs/{job}/fail", {"note": "x"})
    again = operator.post(f"/jobs/{job}/resubmit", {"note": "x"}).json()
    assert again["limits"] == {}
    assert claimed(worker()) == []


def test_the_keys_of_a_rule_are_listed(rule, jobs, worker, operator):
    rule("tag:*", running=1)
    jobs(2)
    worker().hold()
    seen = operator.get("/limits/tag:*").json()["keys"]
    assert [(key["key"], key["used"], key["allowed"], key["parked"]) for key in seen] == [("tag:script", 1, 1, 1)]


def test_nothing_is_repaired_and_nothing_left(rule, jobs, worker):
    rule("namespace:*", running=2)
    jobs(5)
    one = worker(max_concurrent=10)
    while attempts := one.claim(limit=10):
        for attempt in attempts:
            run(one, attempt)
    sweep.run_sweep()
    assert LimitSlot.objects.count() == LimitRecheck.objects.count() == 0
    assert not Tally.objects.filter(name="limit_repairs").exists()
    assert not WorkerJob.objects.exclude(state="COMPLETED").exists()


@pytest.mark.parametrize("pattern", ["tag:", "action:", "namespace:", "tag::*", "tag:a*", "tag:*:b", "tag: "])
def test_rules_without_a_name_are_refused(rule, pattern):
    rule(pattern, running=1, status=400)


def test_a_rule_parks_only_for_some_seconds_and_claims_park_the_rest(rule, jobs, worker, parked, monkeypatch):
    monkeypatch.setattr(limit_rules, "PARKING_TIME", 0)
    monkeypatch.setattr(limits, "JOBS_AT_ONCE", 1)
    waiting = jobs(4)
    rule("action:script", running=1)
    assert parked(*waiting).count(None) == 4
    assert claimed(worker(tags=TAGS, max_concurrent=10)) == waiting[:1]
    assert parked(*waiting[1:]) == ["action:script"] * 3
