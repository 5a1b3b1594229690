"""Jobs of a hold are parked in batches, so that claims do not read them, and come back when it ends."""

import uuid

import pytest
from django.db import connection

from jobs.choices import HoldOf
from jobs.models import WorkerJob
from jobs.services import hints, hold_parking, holds, limits, sweep
from tests.integration.races.test_hot_paths import submit_many
from tests.support.executions import step
from tests.support.plans import executed, plan_of_execution
from tests.support.queries import CapturedQueries

CONFIRM = {"type": "callable", "path": "shop.mail:confirm"}
CHARGE = {"type": "callable", "path": "shop.orders:charge"}
PYTHON = {"tags": ["python"]}
pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def hold(db):
    return lambda of="action", value=CONFIRM["path"], **fields: holds.create_hold(
        HoldOf(of), str(value), "operator:ann", **fields
    )[0]


def release(held):
    holds.release_hold(held.pk, "operator:ann")


def claimed(worker, limit=100):
    return [attempt["job"]["id"] for attempt in worker.claim(limit=limit)]


def parked():
    """Return what parks each waiting job, in the order of their ids."""
    return list(WorkerJob.objects.filter(state="PENDING").order_by("pk").values_list("parked_by", flat=True))


def rows_read_by_a_claim(one):
    """Return how many jobs a claim reads, also those that it does not get."""
    with CapturedQueries(connection) as queries:
        one.claim()
    plan = plan_of_execution(executed(queries, "claim_jobs"))
    reads = [node for node in plan if node.get("Relation Name") == "jobs_workerjob"]
    return sum(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in reads)


@pytest.mark.parametrize("kind", ["action", "limit"])
def test_the_rows_that_a_claim_reads_stay_flat_with_thousands_of_held_jobs(kind, hold, worker):
    one = worker(**PYTHON)
    submit_many(2, action=CHARGE)
    few = rows_read_by_a_claim(one)
    submit_many(5_000, action=CONFIRM, priority=5, **({"limits": {"stripe": 1}} if kind == "limit" else {}))
    held = hold() if kind == "action" else hold("limit", "stripe")
    assert WorkerJob.objects.filter(parked_by={"hold": str(held.pk)}).count() == 5_000
    submit_many(2, action=CHARGE)
    with connection.cursor() as cursor:
        cursor.execute("analyze jobs_workerjob")
    assert rows_read_by_a_claim(one) <= few
    assert not WorkerJob.objects.filter(action=CONFIRM, attempt_count__gt=0).exists()


def test_a_released_hold_gives_its_jobs_back_in_the_order_of_claims(hold, worker, monkeypatch):
    monkeypatch.setattr(hold_parking, "JOBS_AT_ONCE", 2)
    one = worker(**PYTHON, max_concurrent=10)
    low, high = submit_many(3, action=CONFIRM), submit_many(2, action=CONFIRM, priority=5)
    held = hold()
    assert claimed(one) == [] and parked() == [{"hold": str(held.pk)}] * 5
    announced = []
    monkeypatch.setattr(hold_parking, "announce_work", lambda: announced.append(True))
    release(held)
    assert parked() == [None] * 5 and len(announced) == 3
    assert claimed(one) == [str(job) for job in [*high, *low]]


def test_a_call_parks_a_bounded_number_and_the_sweep_the_others(hold, worker, monkeypatch):
    monkeypatch.setattr(hold_parking, "JOBS_AT_ONCE", 2)
    monkeypatch.setattr(hold_parking, "BATCHES_OF_CALL", 2)
    one = worker(**PYTHON)
    submit_many(7, action=CONFIRM)
    held = hold()
    assert sum(reason is not None for reason in parked()) == 4 and claimed(one) == []
    assert sweep.run_sweep()["holds"] == {"parked": 3}
    release(held)
    assert sum(reason is None for reason in parked()) == 4
    assert sweep.run_sweep()["holds"] == {"unparked": 3} and len(claimed(one)) == 7


def test_the_sweep_parks_jobs_that_came_after_the_hold(hold, worker):
    held = hold()
    submit_many(1, action=CONFIRM)
    assert parked() == [None] and claimed(worker(**PYTHON)) == []
    assert sweep.run_sweep()["holds"] == {"parked": 1}
    assert parked() == [{"hold": str(held.pk)}]
    assert sweep.run_sweep()["holds"] == {}


def test_no_job_stays_parked_without_its_hold(hold, worker):
    job, _ = submit_many(2, action=CONFIRM)
    held = hold()
    WorkerJob.objects.filter(pk=job).update(parked_by={"hold": str(uuid.UUID(int=1))})
    holds.Hold.objects.filter(pk=held.pk).delete()
    assert sweep.run_sweep()["holds"] == {"unparked": 2}
    assert parked() == [None, None]


def test_a_job_that_its_hold_does_not_cover_is_unparked(hold, worker):
    held = hold()
    [job] = submit_many(1, action=CHARGE)
    WorkerJob.objects.update(parked_by={"hold": str(held.pk)})
    assert sweep.run_sweep()["holds"] == {"unparked": 1}
    assert claimed(worker(**PYTHON)) == [str(job)]


def test_a_hold_whose_time_is_over_gives_its_jobs_back_before_the_next_sweep(hold, worker, clock):
    [job] = submit_many(1, action=CONFIRM)
    one = worker(**PYTHON)
    hold(seconds=60)
    clock.advance(59)
    one.beat()
    holds.end_due_holds()
    assert claimed(one) == []
    clock.advance(2)
    one.beat()
    holds.end_due_holds()
    assert claimed(one) == [str(job)]


def test_a_job_of_two_holds_waits_for_both(hold, worker):
    [job] = submit_many(1, action=CONFIRM)
    one = worker(**PYTHON)
    first, second = hold(), hold("action", "callable")
    assert parked() == [{"hold": str(first.pk)}]
    release(first)
    assert parked() == [{"hold": str(second.pk)}] and claimed(one) == []
    release(second)
    assert claimed(one) == [str(job)]


def test_the_steps_of_a_held_execution_are_parked(hold, worker, submit):
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a"), step("b", "a")]}).json()
    held = hold("execution", run["id"])
    assert parked() == [{"hold": str(held.pk)}]
    release(held)
    assert len(claimed(worker())) == 1


def test_a_held_job_passes_its_slot_to_another_job_of_its_key(hold, worker, submit, api):
    api("operator").call("put", "/limits/stripe", {"running": 1})
    one = worker(**PYTHON, max_concurrent=10)
    confirm = [submit(action=CONFIRM, limits=["stripe"])["id"] for _ in range(2)]
    limits.settle_rechecks()
    charge = submit(action=CHARGE, limits=["stripe"])["id"]
    held = hold()
    limits.settle_rechecks()
    attempts = one.claim()
    assert [attempt["job"]["id"] for attempt in attempts] == [charge]
    one.start(attempts[0])
    one.complete(attempts[0])
    release(held)
    limits.settle_rechecks()
    assert claimed(one) == confirm[:1], "the limit counts again"


def test_a_job_that_loses_the_held_limit_may_start(hold, worker, submit, api):
    job = submit(action=CHARGE, limits=["stripe"])["id"]
    hold("limit", "stripe")
    assert api("operator").call("PATCH", f"/jobs/{job}", {"limits": []}).status_code == 200
    assert claimed(worker(**PYTHON)) == [job]


def test_a_parked_job_shows_its_hold_and_counts_as_parked(hold, worker, api):
    worker(**PYTHON)
    [job] = submit_many(1, action=CONFIRM)
    held = hold()
    viewer = api("viewer")
    assert viewer.get(f"/jobs/{job}").json()["parked_by"] == {"hold": str(held.pk)}
    assert viewer.get(f"/jobs/{job}/placement").json()["waiting_for"]["hold"] == str(held.pk)
    [queue] = viewer.get("/queues").json()["items"]
    assert (queue["waiting"], queue["parked"]) == (0, 1)
    assert viewer.get(f"/holds/{held.pk}").json()["parked"] == 1


def test_a_parked_job_is_cancelled_like_another_one(hold, submit):
    job = submit(action=CONFIRM)["id"]
    hold()
    submit.client.post(f"/jobs/{job}/cancel", {})
    assert WorkerJob.objects.get(pk=job).state == "CANCELLED"


def test_hints_leave_parked_jobs_out(hold, worker):
    submit_many(1, action=CONFIRM)
    hold()
    assert hints.list_claimable_jobs(10, [("default", ["python"])]) == []


def test_a_wait_for_a_worker_begins_when_the_hold_ends(hold, worker, clock, settings):
    settings.JOBS = {"UNMATCHED_AFTER": 60}
    [job] = submit_many(1, action=CONFIRM, tags=["gpu"])
    held = hold()
    clock.advance(300)
    sweep.run_sweep()
    release(held)
    clock.advance(59)
    worker(tags=["other"])
    sweep.run_sweep()
    assert WorkerJob.objects.get(pk=job).state == "PENDING"
