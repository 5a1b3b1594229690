"""Claims begin where waiting jobs begin, so they read no dead index entries. No job is skipped for long."""

import random
from contextlib import closing

import pytest
from django.db import connection

from jobs.models import WorkerJob
from jobs.services import claiming, hints
from liveness.services import tokens
from tests.integration.races.test_hot_paths import submit_many
from tests.support.rounds import some_seeds

SETS = [(), ("gpu",), ("gpu", "ssd"), ("ssd",), ("zone",)]


def claim(one, limit=100):
    return [attempt.job for attempt in claiming.claim_jobs(tokens.read_server_token(one.token), limit)[0]]


def run(statement, params=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()[0] if cursor.description else None


def entries_read():
    """Return how many entries of the index of claims this transaction has read, dead ones included."""
    return run("select pg_stat_get_xact_tuples_returned('job_to_claim'::regclass)")


def put_back(job):
    """Let a job wait again at its earlier position, without an announcement, as a transaction that commits late."""
    run("set session_replication_role = replica")
    run(
        "update jobs_attempt set state = 'REQUEUED', finished_at = now() where job_id = %s and finished_at is null",
        [job],
    )
    WorkerJob.objects.filter(pk=job).update(state="PENDING", attempt_id=None, finished_at=None)
    run("reset session_replication_role")


def drained(one, claims, limit=50):
    """Make this number of claims, and return the number of index entries that each claim read."""
    read = []
    for _ in range(claims):
        before = entries_read()
        assert len(claim(one, limit)) == limit
        read.append(entries_read() - before)
    return read


def remove_dead_entries():
    """Remove the index entries of jobs that earlier tests have rolled back."""
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute("vacuum (index_cleanup on) jobs_workerjob")


def test_claims_read_no_entries_of_jobs_that_were_claimed_before(worker, seconds, clock):
    remove_dead_entries()
    one = worker(max_concurrent=100_000, tags=["script", "gpu"])
    for priority in (0, 5):
        submit_many(1000, priority=priority), submit_many(1000, priority=priority, tags=["gpu"])
    clock.advance(5)  # the test is one transaction, so all entries of claimed jobs stay
    read = drained(one, 70)
    assert max(read[3:]) < 800 and sum(read[3:]) / len(read[3:]) < 350
    assert claim(one, 1000) and claim(one, 1000) == []


def test_without_floors_claims_would_read_them_all(worker, clock):
    one = worker(max_concurrent=100_000)
    submit_many(1000), submit_many(1000)
    assert drained(one, 30)[-1] > 1000


def test_a_queue_is_read_from_its_beginning_once_a_second(worker, seconds, clock):
    one = worker(max_concurrent=100_000)
    submit_many(500), clock.advance(5)
    first = claim(one, 10)[0]
    drained(one, 3, 10)
    put_back(first)
    seconds.now += 0.9
    assert first not in claim(one, 10)
    seconds.now += 0.1
    assert claim(one, 10)[0] == first


def test_a_job_that_is_announced_is_found_at_once(worker, seconds, clock, django_capture_on_commit_callbacks):
    one = worker(max_concurrent=100_000)
    submit_many(500), clock.advance(5)
    first = one.claim(limit=10)[0]
    drained(one, 3, 10)
    with django_capture_on_commit_callbacks(execute=True):
        one.report({"attempt": first["id"], "event": "RELEASED", "reason": "stopping"})
    assert str(claim(one, 10)[0]) == first["job"]["id"]


def test_another_process_announces_that_jobs_came_back(worker, seconds, clock):
    one = worker(max_concurrent=100_000)
    submit_many(500), clock.advance(5)
    first = claim(one, 10)[0]
    drained(one, 3, 10)
    put_back(first)
    hints.note_announcement("")
    assert first not in claim(one, 10), "others announced new jobs"
    hints.note_announcement(hints.EARLIER_WORK)
    assert claim(one, 10)[0] == first


def test_a_new_set_and_a_new_priority_are_found_at_once(worker, seconds, clock):
    one = worker(max_concurrent=100_000, tags=["script", "a", "gpu"])
    submit_many(100), clock.advance(5)
    drained(one, 5, 10)
    for fields in ({"tags": ["gpu"]}, {"tags": ["a", "gpu"], "priority": 1}, {"priority": 7}, {"priority": -7}):
        (new,) = submit_many(1, **fields)
        assert new in claim(one, 100)


def test_jobs_that_are_submitted_at_about_the_same_time_do_not_wait_for_each_other(worker, seconds, clock):
    one = worker(max_concurrent=100_000)
    submit_many(20), clock.advance(5)
    late, _, _ = (submit_many(1)[0], clock.advance(0.9), submit_many(1))
    WorkerJob.objects.filter(pk=late).update(state="CANCELLED", finished_at="2026-01-01T00:00:00Z")
    while claim(one, 10):
        pass
    put_back(late)
    assert claim(one, 10) == [late]


def expected(tags):
    """Return the jobs that a worker with these tags could claim, in order."""
    waiting = WorkerJob.objects.filter(state="PENDING").order_by("-priority", "available_at", "pk")
    return [job.pk for job in waiting if set(job.required_tags) <= set(tags)]


@pytest.mark.parametrize("seed", some_seeds(3, 8))
def test_nothing_that_can_be_claimed_is_passed_over_for_more_than_a_second(worker, seconds, clock, seed):
    chance = random.Random(seed)
    kinds = [["script"], ["script", "gpu"], ["script", "gpu", "ssd"], ["script", "zone", "aaa"]]
    workers = [(worker(name=f"w{n}", max_concurrent=100_000, tags=tags), tags) for n, tags in enumerate(kinds)]
    claimed, came_back = [], {}
    for _ in range(120):
        one, tags = chance.choice(workers)
        match chance.choice(["submit", "submit", "claim", "claim", "claim", "back", "time"]):
            case "submit":
                chosen = {
                    "tags": list(chance.choice(SETS)),
                    "priority": chance.choice([-1, 0, 0, 3, chance.randint(0, 99)]),
                }
                submit_many(chance.randint(1, 8), **chosen)
            case "back" if claimed:
                job = claimed.pop(chance.randrange(len(claimed)))
                put_back(job)
                came_back[job] = seconds.now
            case "time":
                clock.advance(chance.choice([0.1, 2]))
                for other, _ in workers:
                    other.beat()
                seconds.now += chance.choice([0.1, 0.5, 1])
            case "claim":
                could, limit = expected(tags), chance.choice([1, 3, 10, 1000])
                hidden = {job for job, at in came_back.items() if seconds.now - at < 1}
                got = claim(one, limit)
                assert set(got) <= set(could)
                assert len(set(got)) == len(got)
                sure = [job for job in could if job not in hidden]
                assert [job for job in got if job not in hidden] == sure[: sum(job not in hidden for job in got)]
                assert len(got) >= min(limit, len(sure))
                claimed += got
                came_back = {job: at for job, at in came_back.items() if job not in got}
    seconds.now += 1
    for one, tags in workers:
        could = expected(tags)
        assert claim(one, 5000) == could
        assert expected(tags) == []
