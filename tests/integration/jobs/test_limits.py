"""Limits: how many jobs with a key run at once, what is parked, and who comes next."""

import pytest

from jobs import in_process
from jobs.models import LimitBucket, LimitRecheck, LimitSlot, WorkerJob
from jobs.services import limits, sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import Clock, ServerEvent, Tally
from liveness.services import tokens
from tests.support.http import Caller

KEY = "customer:42"
pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def rule(operator):
    """Return a function that sets a rule: `rule("customer:42", running=1)`."""

    def rule(pattern=KEY, status=201, caller=operator, **fields):
        answer = caller.call("put", f"/limits/{pattern}", fields)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return rule


def run(worker, attempt):
    """Run an attempt from its start to its end."""
    assert worker.start(attempt)["accepted"]
    return worker.complete(attempt)


@pytest.fixture
def limited(submit):
    """Return a function that submits jobs with limits and returns their ids."""

    def limited(number=1, limits=(KEY,), **fields):
        wanted = limits if isinstance(limits, dict) else list(limits)
        return [submit(limits=wanted, unmatched="wait", **fields)["id"] for _ in range(number)]

    return limited


@pytest.fixture
def read(api):
    viewer = api("viewer")
    return lambda job: viewer.get(f"/jobs/{job}").json()


def parked(read, jobs):
    return [read(job)["parked_by"] for job in jobs]


def claimed(worker, limit=10):
    return [attempt["job"]["id"] for attempt in worker.claim(limit=limit)]


BY_KEY = {"limit": KEY}


def test_jobs_without_a_rule_are_not_limited(worker, limited, read):
    jobs = limited(3)
    assert read(jobs[0])["limits"] == {KEY: 1}
    assert parked(read, jobs) == [None] * 3
    assert claimed(worker(max_concurrent=10)) == jobs


def test_as_many_jobs_run_as_the_rule_allows_in_their_order(worker, rule, limited, read):
    rule(running=2)
    jobs = limited(4)
    assert parked(read, jobs) == [None, None, BY_KEY, BY_KEY]
    one, two = worker(max_concurrent=10), worker(name="two", max_concurrent=10)
    attempts = one.claim(limit=10)
    assert [attempt["job"]["id"] for attempt in attempts] == jobs[:2]
    assert claimed(two) == []
    run(one, attempts[0])
    assert claimed(two) == [jobs[2]]
    assert LimitSlot.objects.count() == 2


def test_other_jobs_pass_those_that_are_parked(worker, rule, limited, submit):
    rule(running=1)
    jobs = limited(3)
    other = submit(unmatched="wait")["id"]
    assert claimed(worker(max_concurrent=10)) == [jobs[0], other]


def test_each_key_under_a_prefix_counts_by_itself(worker, rule, limited):
    rule("customer:*", running=1)
    jobs = [limited(limits=[f"customer:{n}"])[0] for n in (1, 1, 2, 2)]
    assert claimed(worker(max_concurrent=10)) == [jobs[0], jobs[2]]


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ({"a:*": 1, "a:b:*": 3}, 3),
        ({"a:*": 1, "a:b:c": 2}, 2),
        ({"a:b:*": 3, "a:b:c": 2}, 2),
        ({"b:*": 1}, 5),
        ({"a:*": 0}, 0),
    ],
)
def test_the_most_specific_rule_counts(worker, rule, limited, rules, allowed):
    for pattern, running in rules.items():
        rule(pattern, running=running)
    limited(5, ["a:b:c"])
    assert len(claimed(worker(max_concurrent=10))) == allowed


def test_a_job_may_need_several_slots(worker, rule, limited, read):
    rule("gpu", running=5)
    jobs = [limited(limits={"gpu": slots})[0] for slots in (4, 4, 1)]
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=10)
    assert attempt["job"]["id"] == jobs[0]
    assert parked(read, jobs[1:]) == [{"limit": "gpu"}] * 2
    run(one, attempt)
    assert claimed(one) == jobs[1:]


def test_a_job_that_needs_more_slots_than_there_are_stops_no_other(worker, rule, limited):
    rule("gpu", running=2)
    limited(limits={"gpu": 3})
    small = limited(limits={"gpu": 2})
    assert claimed(worker(max_concurrent=10)) == small


def test_a_job_gets_the_slots_of_all_its_keys_or_none(worker, rule, limited, read):
    rule("a", running=1)
    rule("b", running=1)
    one = worker(max_concurrent=10)
    holds_b = limited(limits=["b"])
    assert claimed(one) == holds_b
    both = limited(limits=["a", "b"])
    assert claimed(one) == []
    assert parked(read, both) == [{"limit": "b"}]
    only_a = limited(limits=["a"])
    assert claimed(one) == only_a
    assert LimitSlot.objects.count() == 2


def test_a_rule_that_grows_unparks_at_once(worker, rule, limited, read):
    rule(running=1)
    jobs = limited(4)
    rule(running=3, status=200)
    assert parked(read, jobs) == [None, None, None, BY_KEY]
    assert claimed(worker(max_concurrent=10)) == jobs[:3]


def test_a_rule_that_shrinks_parks_at_once_and_stops_nothing_that_runs(worker, rule, limited, read):
    rule(running=3)
    jobs = limited(5)
    one = worker(max_concurrent=10)
    (attempt,) = one.claim(limit=1)
    rule(running=2, status=200)
    assert parked(read, jobs[1:]) == [None, BY_KEY, BY_KEY, BY_KEY]
    rule(running=0, status=200)
    assert parked(read, jobs[1:]) == [BY_KEY] * 4
    assert run(one, attempt)["accepted"]
    assert claimed(one) == []


def test_a_new_rule_counts_what_runs_already(worker, rule, limited):
    jobs = limited(2)
    one = worker(max_concurrent=10)
    assert claimed(one) == jobs
    rule(running=2)
    limited(1)
    assert claimed(one) == []


def test_a_rule_without_which_nothing_is_limited_unparks_all_when_it_goes(rule, limited, operator, read):
    rule("customer:*", running=1)
    jobs = limited(3)
    assert operator.call("delete", "/limits/customer:*").status_code == 204
    assert parked(read, jobs) == [None] * 3
    assert operator.call("delete", "/limits/customer:*").status_code == 404


@pytest.mark.parametrize("way", ["cancel", "fail"])
def test_a_waiting_job_that_ends_passes_its_turn_on(rule, limited, operator, read, way):
    rule(running=1)
    first, second = limited(2)
    operator.post(f"/jobs/{first}/{way}", {"note": "x"})
    assert parked(read, [second]) == [None]


def test_a_parked_job_that_ends_changes_nothing_for_the_others(rule, limited, operator, read):
    rule(running=1)
    jobs = limited(3)
    operator.post(f"/jobs/{jobs[1]}/cancel", {})
    assert parked(read, jobs) == [None, None, BY_KEY]
    assert read(jobs[1])["state"] == "CANCELLED"


def test_a_job_that_expires_passes_its_turn_on(rule, limited, clock, read):
    rule(running=1)
    limited(good_until="2090-01-01T00:00:00Z")
    (second,) = limited()
    WorkerJob.objects.filter(good_until__isnull=False).update(good_until="2001-01-01T00:00:00Z")
    sweep.run_sweep()
    assert parked(read, [second]) == [None]


def test_a_cancelled_job_keeps_its_slot_until_its_worker_confirms(worker, rule, limited, operator, read):
    rule(running=1)
    first, second = limited(2)
    one = worker()
    held = one.hold()
    operator.post(f"/jobs/{first}/cancel", {})
    assert parked(read, [second]) == [BY_KEY]
    one.report({"attempt": held["id"], "event": "CANCELLED"})
    assert parked(read, [second]) == [None]


def test_a_retry_waits_behind_no_slot_of_its_own(worker, rule, limited):
    rule(running=1)
    (job,) = limited(max_retries=1)
    one = worker()
    held = one.hold()
    one.report({"attempt": held["id"], "event": "FAILED", "error": {"code": "x"}})
    assert claimed(one) == [job]


def test_the_jobs_of_each_set_of_tags_have_their_own_turns(worker, rule, limited):
    """A job that no worker takes at the head of its key must not stop the others."""
    rule(running=1)
    limited(2, tags=["gpu"])
    plain = limited(2)
    assert claimed(worker()) == plain[:1]


def test_a_claim_parks_what_another_claim_left_no_slot_for(worker, rule, limited, read):
    rule(running=1)
    (on_gpu,) = limited(tags=["gpu"])
    (plain,) = limited()
    assert parked(read, [on_gpu, plain]) == [None, None]
    assert claimed(worker()) == [plain]
    assert claimed(worker(name="gpu", tags=["gpu", "script"])) == []
    assert parked(read, [on_gpu]) == [BY_KEY]


def test_priority_then_age_decide_who_comes_next(worker, rule, limited):
    rule(running=1)
    one = worker()
    limited()
    held = one.hold()
    low, high = limited(priority=-1) + limited(priority=5)
    one.report({"attempt": held["id"], "event": "COMPLETED"})
    held = one.hold()
    assert held["job"]["id"] == high
    one.report({"attempt": held["id"], "event": "COMPLETED"})
    assert claimed(one) == [low]


def test_a_lost_worker_keeps_the_slots_until_its_code_has_stopped(worker, rule, limited, clock, read):
    rule(running=1)
    first, second = limited(1, on_worker_lost="FAIL") + limited()
    one = worker()
    one.hold()
    clock.advance(3600)
    check_liveness()
    check_liveness()
    assert read(first)["state"] == "FAILED"
    assert parked(read, [second]) == [None]
    assert LimitSlot.objects.count() == 0


def test_an_attempt_that_an_operator_moves_keeps_its_slot_until_its_worker_stops_it(
    worker, rule, limited, operator, read
):
    rule(running=1)
    first, second = limited(2)
    one = worker()
    held = one.hold()
    operator.post(f"/jobs/{first}/resubmit", {"note": "x"})
    assert LimitSlot.objects.count() == 1
    two = worker(name="two")
    assert claimed(two) == []
    one.beat(stopped=[])
    assert LimitSlot.objects.count() == 1
    one.beat(stopped=[held["id"]])
    assert LimitSlot.objects.count() == 0
    assert claimed(two) == [first]
    assert parked(read, [second]) == [BY_KEY]


def test_the_sweep_frees_slots_and_jobs_that_nothing_freed(worker, rule, limited, read):
    rule(running=1)
    _, second = limited(2)
    one = worker()
    run(one, one.claim()[0])
    WorkerJob.objects.filter(pk=second).update(parked_by=BY_KEY)
    LimitSlot.objects.create(key=KEY, namespace="default", attempt_id=one.id, amount=1)
    assert sweep.run_sweep()["limits"] == {"slots": 1}
    assert parked(read, [second]) == [None]
    WorkerJob.objects.filter(pk=second).update(parked_by=BY_KEY)
    assert sweep.run_sweep()["limits"] == {"jobs": 1}
    assert {"slots", "jobs"} == {
        labels[0] for labels in Tally.objects.filter(name="limit_repairs").values_list("labels", flat=True)
    }
    assert sweep.run_sweep()["limits"] == {}


def test_a_limited_job_is_not_told_to_lack_a_worker(rule, limited, submit, clock, read):
    rule(running=0)
    (job,) = limited()
    assert read(job)["flags"] == []
    placement = submit.client.get(f"/jobs/{job}/placement").json()
    assert placement["waiting_for"] == {"what": "limit", "until": None, "limit": KEY}
    clock.advance(100_000)
    sweep.run_sweep()
    assert read(job)["state"] == "PENDING"


def test_a_queue_counts_parked_jobs_apart(rule, limited, operator):
    rule(running=1)
    limited(3)
    [queue] = operator.get("/queues").json()["items"]
    assert (queue["waiting"], queue["parked"]) == (1, 2)


def test_a_change_of_the_keys_counts_at_once(rule, limited, operator, read):
    rule(running=1)
    first, second = limited(2)
    changed = operator.call("patch", f"/jobs/{second}", {"limits": []}).json()
    assert (changed["limits"], changed["parked_by"]) == ({}, None)
    operator.call("patch", f"/jobs/{second}", {"limits": [KEY]})
    assert parked(read, [first, second]) == [None, BY_KEY]
    operator.call("patch", f"/jobs/{second}", {"priority": 9})
    assert parked(read, [first, second]) == [BY_KEY, None]


def test_a_job_that_starts_later_takes_no_turn(rule, limited, read):
    rule(running=1)
    later = limited(available_at="2090-01-01T00:00:00Z", priority=9)
    now = limited()
    assert parked(read, [*later, *now]) == [None, None]


def test_a_rule_of_another_namespace_counts_for_its_own_jobs(worker, rule, limited):
    red = Caller(tokens.create_token("red", "operator", namespace="red"))
    rule(running=1, caller=red)
    assert len(claimed(worker(max_concurrent=10))) == 0
    jobs = limited(2)
    assert claimed(worker(name="two", max_concurrent=10)) == jobs


def test_a_rule_of_default_counts_for_all_namespaces_together(api, worker, rule, limited):
    rule(running=1)
    client = Caller(tokens.create_token("red client", "client", namespace="red"))
    answer = client.post(
        "/jobs", {"action": {"type": "script", "command": "true"}, "limits": [KEY], "unmatched": "wait"}
    )
    assert answer.status_code == 201
    assert claimed(worker(max_concurrent=10)) == []
    (job,) = limited()
    assert claimed(worker(name="two", max_concurrent=10)) == [job]


def test_rules_are_read_listed_and_recorded(rule, operator, limited, worker, read):
    made = rule("customer:*", running=1, starts=5, per_seconds=60, note="small server")
    limited(3)
    worker().hold()
    seen = operator.get("/limits/customer:*").json()
    [key] = seen.pop("keys")
    assert seen == made
    assert (key["key"], key["used"], key["allowed"], key["parked"]) == (KEY, 1, 1, 2)
    assert key["oldest_at"] is not None
    assert [item["pattern"] for item in operator.get("/limits").json()["items"]] == ["customer:*"]
    event = ServerEvent.objects.get(action="set_limit")
    assert (event.subject_type, event.reason) == ("limit", "small server")
    assert event.changes["running"] == {"old": None, "new": 1}
    assert operator.get("/limits/other").status_code == 404


def test_a_pattern_may_contain_slashes(rule, operator):
    rule("https://shop/*?".replace("*?", "x"), running=1)
    assert operator.get("/limits/https%3A%2F%2Fshop%2Fx").json()["running"] == 1


@pytest.mark.parametrize(
    "wanted",
    [
        "a", 1, ["a", "a"], ["a", 1], [""], ["x" * 201], ["a", "b", "c", "d", "e"], {"a": 0}, {"a": 1.5}, {"a": True},
        {"a": None}, ["action:x"], ["tag:x"], ["namespace:x"], ["a:*"], ["a\nb"], [" a"],
    ],
)  # fmt: skip
def test_keys_that_are_wrong_are_refused(submit, wanted):
    answer = submit.client.post("/jobs", {"action": {"type": "script", "command": "true"}, "limits": wanted})
    assert answer.status_code == 400
    assert "limits" in answer.json()["errors"]


@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        ("a", {}), ("a", {"running": -1}), ("a", {"running": 1.5}), ("a", {"starts": 1}), ("a", {"per_seconds": 1}),
        ("a", {"starts": 0, "per_seconds": 1}), ("a", {"starts": 1, "per_seconds": 0}), ("a", {"other": 1}),
        ("a*", {"running": 1}), ("*", {"running": 1}), ("a:*:b", {"running": 1}), ("x" * 201, {"running": 1}),
        ("tag:", {"running": 1}),
    ],
)  # fmt: skip
def test_rules_that_are_wrong_are_refused(operator, pattern, body):
    assert operator.call("put", f"/limits/{pattern}", body).status_code == 400


def test_a_job_that_is_an_execution_refuses_limits_and_its_steps_take_them(worker, rule, api, submit):
    rule(running=1)
    step = {"action": {"type": "script", "command": "true"}, "limits": [KEY], "unmatched": "wait"}
    body = {"name": "e", "steps": [{"key": "a", **step}, {"key": "b", **step}]}
    assert api("client").post("/executions", body).status_code == 201
    assert len(claimed(worker(max_concurrent=10))) == 1
    action = {"type": "execution", **body}
    assert submit.client.post("/jobs", {"action": action, "limits": [KEY]}).status_code == 400


def test_jobs_of_the_projects_code_may_have_limits(rule, worker, read):
    rule(running=1)
    jobs = [in_process.submit({"type": "script", "command": "true"}, limits=[KEY], unmatched="wait") for _ in "ab"]
    assert parked(read, jobs) == [None, BY_KEY]


def test_a_job_that_is_submitted_again_has_the_same_limits(rule, limited, operator, read):
    rule(running=1)
    (job,) = limited()
    operator.post(f"/jobs/{job}/fail", {"note": "x"})
    again = operator.post(f"/jobs/{job}/resubmit", {"note": "x"}).json()
    assert again["limits"] == {KEY: 1}


def test_at_most_so_many_jobs_start_in_a_time(worker, rule, limited, clock):
    rule(starts=2, per_seconds=10)
    limited(6)
    one = worker(max_concurrent=10)
    assert len(claimed(one)) == 2
    assert claimed(one) == []
    clock.advance(5)
    one.beat()
    assert limits.settle_left() == 1
    assert len(claimed(one)) == 1
    clock.advance(100)
    one.beat()
    limits.settle_left()
    assert len(claimed(one)) == 2
    assert LimitRecheck.objects.count() == 0
    sweep.run_sweep()
    assert LimitBucket.objects.count() == 1
    clock.step(3601)
    sweep.run_sweep()
    assert LimitBucket.objects.count() == 0


def test_a_clock_that_is_set_back_stops_no_starts_for_long(worker, rule, limited, clock):
    rule(starts=1, per_seconds=10)
    one = worker(max_concurrent=10)
    Clock.objects.update(witnessed=True)
    for _ in range(3):
        clock.step(10)
        one.beat()
        check_liveness()
    limited(2)
    assert len(claimed(one)) == 1
    clock.step(-1000)
    one.beat()
    check_liveness()
    clock.advance(11)
    one.beat()
    limits.settle_left()
    assert len(claimed(one)) == 1


def test_a_job_with_limits_is_not_claimed_ahead_and_no_job_passes_it(worker, limited, submit):
    one = worker()
    first = submit(unmatched="wait")["id"]
    second = limited()
    third = submit(unmatched="wait")["id"]
    (attempt,) = one.claim(limit=1, ahead=5)
    assert attempt["job"]["id"] == first
    run(one, attempt)
    assert [given["job"]["id"] for given in one.claim(limit=1, ahead=5)] == [*second, third]
