"""Fair limits: the keys under a prefix take turns, in proportion to their weights."""

import random
from collections import Counter

import pytest
from django.db import connection

from jobs.models import FairTurn, WorkerJob
from jobs.services import sweep
from tests.support.rounds import some_seeds

SCRIPT = {"type": "script", "command": "true"}
pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def rule(operator):
    """Return a function that sets a rule: `rule("customer:*", fair=True)`."""

    def rule(pattern="customer:*", status=(200, 201), **fields):
        answer = operator.call("put", f"/limits/{pattern}", fields)
        assert answer.status_code in status, answer.json()
        return answer.json()

    return rule


@pytest.fixture
def jobs_of(submit):
    """Return a function that submits jobs with these keys in one list, and returns their ids."""

    def jobs_of(keys, number=1, **fields):
        wanted = keys.split() if isinstance(keys, str) else keys
        body = {"action": SCRIPT, "limits": [f"customer:{key}" for key in wanted], "unmatched": "wait", **fields}
        answer = submit.client.post("/jobs", [body] * number)
        assert answer.status_code == 201, answer.json()
        return [job["id"] for job in answer.json()["items"]]

    return jobs_of


@pytest.fixture
def one(worker):
    return worker(max_concurrent=100_000)


def claim(one, limit=1):
    return [attempt["job"]["id"] for attempt in one.claim(limit=limit)]


def started(one, limit=1):
    """Claim jobs, and return the keys of each, such as `a`, in their order. A job without keys is `-`."""
    found = WorkerJob.objects.in_bulk(claim(one, limit), field_name="id")
    return [keys_of(job) for job in found.values()]


def keys_of(job):
    return "+".join(key.removeprefix("customer:") for key in sorted(job.limits or {})) or "-"


def ended(one):
    """Claim a job and run it. Return its keys, or None if no job may start."""
    for attempt in one.claim(limit=1):
        one.start(attempt), one.complete(attempt)
        return keys_of(WorkerJob.objects.get(pk=attempt["job"]["id"]))
    return None


def one_by_one(one, number):
    return [key for _ in range(number) for key in started(one)]


def test_the_first_job_of_another_key_waits_for_one_start_of_each_key(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 200), jobs_of("b", 200)
    assert Counter(started(one, 20)) == {"a": 10, "b": 10}
    jobs_of("c")
    assert "c" in one_by_one(one, 3)


def test_keys_start_in_proportion_to_their_weights(rule, jobs_of, one):
    rule(fair=True)
    rule("customer:a", weight=3)
    jobs_of("a", 100), jobs_of("b", 100)
    assert Counter(one_by_one(one, 40)) == {"a": 30, "b": 10}
    assert Counter(started(one, 40)) == {"a": 30, "b": 10}


def test_a_key_that_was_idle_catches_up_on_nothing(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 200), jobs_of("b", 1)
    assert len(claim(one, 101)) == 101
    jobs_of("b", 50)
    assert Counter(one_by_one(one, 20)) == {"a": 10, "b": 10}


def test_a_key_that_submits_each_job_just_in_time_gets_its_share_only(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 50), jobs_of("b", 50)
    seen = Counter()
    for _ in range(30):
        if not WorkerJob.objects.filter(state="PENDING", limits={"customer:c": 1}).exists():
            jobs_of("c")
        seen.update(started(one))
    assert max(seen.values()) - min(seen.values()) <= 1


def test_priority_comes_before_turns(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 3), jobs_of("b", 3, priority=5), jobs_of("a", 3, priority=5)
    assert Counter(started(one, 6)) == {"a": 3, "b": 3}
    assert one_by_one(one, 9) == ["a"] * 3


def test_the_turns_of_one_priority_do_not_move_those_of_another(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 50), jobs_of("a", 50, priority=5)
    assert len(claim(one, 50)) == 50
    jobs_of("b")
    assert "b" in one_by_one(one, 2)


def test_a_job_that_comes_back_keeps_its_place(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 20), jobs_of("b", 20)
    (first, *_) = one.claim(limit=10)
    one.report({"attempt": first["id"], "event": "RELEASED", "reason": "fenced"})
    assert claim(one) == [first["job"]["id"]]


def test_jobs_without_a_fair_key_get_every_second_start(rule, jobs_of, one, submit):
    rule(fair=True)
    jobs_of("a", 50), jobs_of("b", 50), jobs_of("", 50)
    assert Counter(started(one, 40)) == {"-": 20, "a": 10, "b": 10}
    alone = Counter(one_by_one(one, 40))
    assert alone["-"] > 2 and alone["a"] > 2 and alone["b"] > 2
    assert Counter(started(one, 100)) == {"-": 30 - alone["-"], "a": 40 - alone["a"], "b": 40 - alone["b"]}


def test_without_a_fair_rule_jobs_come_by_age_and_no_turn_is_noted(jobs_of, rule, one):
    rule(weight=5)
    jobs = jobs_of("a", 2) + jobs_of("") + jobs_of("b")
    assert claim(one, 10) == jobs
    assert FairTurn.objects.count() == 0


def test_a_key_may_be_left_out_of_a_fair_prefix(jobs_of, rule, one):
    rule(fair=True)
    rule("customer:a", fair=False)
    jobs_of("a b", 2), jobs_of("a", 2)
    assert WorkerJob.objects.filter(turn=0).count() == 2
    assert set(FairTurn.objects.values_list("key", flat=True)) == {"", "customer:b"}


def test_a_rule_that_becomes_fair_counts_for_jobs_that_wait(rule, jobs_of, one):
    jobs_of("a", 100)
    rule(fair=True)
    jobs_of("b")
    assert "b" in started(one, 2) + started(one, 2)
    jobs_of("b", 20)
    assert Counter(started(one, 10) + started(one, 10) + started(one, 10))["b"] >= 8
    while claim(one, 50):
        pass
    assert not WorkerJob.objects.filter(state="PENDING").exists()


def test_a_rule_that_is_not_fair_any_more_leaves_no_job_behind(rule, jobs_of, one, operator):
    rule(fair=True)
    jobs_of("a", 10), jobs_of("b", 10)
    operator.call("delete", "/limits/customer:*")
    jobs_of("a", 10)
    assert Counter(started(one, 100)) == {"a": 20, "b": 10}


def test_a_job_that_starts_later_takes_its_turn_when_its_time_has_come(rule, jobs_of, one):
    rule(fair=True)
    later = jobs_of("a", 20, available_at="2090-01-01T00:00:00Z")
    jobs_of("b", 100)
    assert started(one, 60) == ["b"] * 60
    WorkerJob.objects.filter(pk__in=later).update(available_at="2020-01-01T00:00:00Z")
    seen = Counter()
    while WorkerJob.objects.filter(pk__in=later, turn=0).exists():
        seen.update(started(one, 4))
    assert abs(seen["a"] - seen["b"]) <= 2


def test_a_job_with_several_fair_keys_waits_for_the_latest_of_their_turns(rule, jobs_of, one):
    rule(fair=True)
    jobs_of("a", 20), jobs_of("b", 20)
    jobs_of("a c"), jobs_of("c")
    seen = one_by_one(one, 42)
    assert seen.index("c") < 8
    assert seen.index("a+c") > 35


def test_a_key_may_have_a_fair_rule_and_a_limit(rule, jobs_of, one):
    rule(fair=True, running=2)
    jobs_of("a", 10), jobs_of("b", 10)
    assert Counter(started(one, 10)) == {"a": 2, "b": 2}
    assert started(one) == []
    rule(fair=True, running=5)
    assert Counter(started(one, 20)) == {"a": 3, "b": 3}


def test_fair_keys_take_turns_while_their_jobs_wait_for_another_limit(rule, jobs_of, one):
    rule(fair=True)
    rule("stripe", running=1)
    jobs_of("", 20, limits=["customer:a", "stripe"]), jobs_of("", 3, limits=["customer:b", "stripe"])
    assert WorkerJob.objects.filter(state="PENDING", parked_by__limit="stripe", turn__gte=1).count() == 22
    assert Counter(ended(one) for _ in range(6)) == {"a+stripe": 3, "b+stripe": 3}
    jobs_of("", 1, limits=["customer:c", "stripe"])
    assert "c+stripe" in [ended(one) for _ in range(4)]
    while ended(one):
        pass
    assert not WorkerJob.objects.exclude(state="COMPLETED").exists()


def test_jobs_with_and_without_a_fair_key_share_the_slots_of_another_key(rule, jobs_of, one):
    rule(fair=True)
    rule("stripe", running=0)
    jobs_of("", 20, limits=["stripe"]), jobs_of("", 20, limits=["customer:a", "stripe"])
    jobs_of("", 20, limits=["customer:b", "stripe"])
    rule("stripe", running=8)
    assert Counter(started(one, 10)) == {"stripe": 4, "a+stripe": 2, "b+stripe": 2}


def test_a_job_whose_priority_changes_takes_a_turn_of_its_new_queue(rule, jobs_of, one, operator):
    rule(fair=True)
    jobs_of("a", 30, priority=5)
    jobs = jobs_of("b", 30)
    assert operator.call("patch", f"/jobs/{jobs[-1]}", {"priority": 5}).status_code == 200
    assert jobs[-1] in claim(one, 4) + claim(one, 4)


def test_keys_take_turns_in_each_set_of_tags_that_a_worker_has(rule, jobs_of, worker):
    rule(fair=True)
    both = worker(max_concurrent=1000, tags=["script", "gpu"])
    jobs_of("a", 50, tags=["gpu"])
    assert len(claim(both, 30)) == 30
    jobs_of("b", 50)
    seen = Counter(one_by_one(both, 20) + started(both, 20))
    assert min(seen.values()) >= 11


def test_the_sweep_deletes_turns_that_no_job_needs_any_more(rule, jobs_of, one, clock):
    rule(fair=True)
    for key in "abc":
        jobs_of(key)
    jobs_of("a", 20)
    assert len(claim(one, 30)) == 23
    sweep.run_sweep()
    assert set(FairTurn.objects.values_list("key", flat=True)) == {"", "customer:a"}
    jobs_of("a", 1, priority=3), jobs_of("a", 1, priority=4)
    assert len(claim(one, 10)) == 2
    clock.step(90_000)
    sweep.run_sweep()
    assert FairTurn.objects.filter(key="").count() == 1


def test_a_job_whose_queue_was_forgotten_is_not_left_behind(rule, jobs_of, one):
    rule(fair=True)
    jobs = jobs_of("a", 3) + jobs_of("", 2)
    FairTurn.objects.all().delete()
    assert set(claim(one, 10)) == set(jobs)


def test_a_claim_passes_over_no_turn_that_its_floors_hide(rule, jobs_of, worker, seconds, clock):
    rule(fair=True)
    one = worker(max_concurrent=100_000)
    jobs_of("a", 200), jobs_of("b", 200), jobs_of("", 200), clock.advance(5), one.beat()
    for _ in range(5):
        assert Counter(started(one, 20)) == {"-": 10, "a": 5, "b": 5}
    jobs_of("c", 2)
    seconds.now += 1
    assert Counter(started(one, 8))["c"] >= 1
    seen = Counter()
    while got := started(one, 50):
        seen.update(got)
    assert sum(seen.values()) == 602 - 100 - 8


@pytest.mark.parametrize("seed", some_seeds(2, 6))
def test_keys_that_wait_all_the_time_never_differ_by_more_than_a_turn(rule, jobs_of, worker, seed):
    """Starts divided by weight differ by at most one start of each key, whatever else was submitted and claimed."""
    chance = random.Random(seed)
    weights = {key: chance.choice([1, 1, 2, 5]) for key in "abcd"}
    rule(fair=True)
    for key, weight in weights.items():
        rule(f"customer:{key}", weight=weight)
    one = worker(max_concurrent=100_000)
    for _ in range(chance.randint(1, 5)):  # some keys were busy before
        jobs_of(chance.choice("ab"), chance.randint(1, 9)), claim(one, chance.randint(1, 9))
    claim(one, 1000)
    for key in chance.sample("abcd", 4):
        jobs_of(key, 60)
    seen = Counter()
    for _ in range(30):
        if chance.random() < 0.3:
            jobs_of(chance.choice("abcd"), chance.randint(1, 3))
        seen.update(started(one, chance.choice([1, 1, 2, 5])))
        for key in "abcd":
            for other in "abcd":
                ahead = seen[key] / weights[key] - seen[other] / weights[other]
                assert ahead <= 1 / weights[key] + 1 / weights[other] + 1e-6


def test_a_rule_by_tag_may_be_fair(rule, jobs_of, one, worker):
    rule("tag:*", fair=True)
    both = worker(max_concurrent=100, tags=["script", "gpu", "ssd"])
    jobs = jobs_of("", 20, tags=["gpu"]) + jobs_of("", 20, tags=["gpu", "ssd"])
    assert WorkerJob.objects.filter(pk__in=jobs, turn__gte=1).count() == 40
    assert len(claim(both, 100)) == 40


def test_rules_show_whether_they_are_fair_and_their_weight(rule, operator):
    assert (rule(fair=True)["fair"], rule(weight=4)["weight"]) == (True, 4)
    seen = operator.get("/limits/customer:*").json()
    assert (seen["fair"], seen["weight"], seen["running"]) == (None, 4, None)


@pytest.mark.parametrize(
    "body", [{"fair": "yes"}, {"fair": 1}, {"weight": 0}, {"weight": 1.5}, {"weight": 1001}, {"fair": None}]
)
def test_fair_rules_that_are_wrong_are_refused(operator, body):
    assert operator.call("put", "/limits/customer:*", body).status_code == 400


def test_a_claim_of_other_jobs_reads_no_more_while_jobs_of_fair_keys_wait(jobs_of, rule, one):
    def entries_read():
        with connection.cursor() as cursor:
            cursor.execute("select pg_stat_get_xact_tuples_returned('job_to_claim'::regclass)")
            return cursor.fetchone()[0]

    def claimed():
        before = entries_read()
        assert started(one, 10) == ["-"] * 10
        return entries_read() - before

    jobs_of("", 500)
    *_, alone = [claimed() for _ in range(4)]  # the first ones also read what other tests left in the index
    rule(fair=True)
    jobs_of("a", 1000, priority=-5)
    *_, beside = [claimed() for _ in range(4)]
    assert beside < alone + 300
