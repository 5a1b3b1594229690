"""Jobs that use several slots of their worker."""

from datetime import timedelta

import pytest
from django.db.models import F

from jobs import in_process
from jobs.models import Attempt, HistoryEntry, WorkerJob
from jobs.services import sweep
from jobs.services.history import count_history
from tests.integration.jobs.test_sweep import UNMATCHED, pass_time
from tests.support.executions import step

SCRIPT = {"type": "script", "command": "true"}
STEP = {"key": "a", "action": SCRIPT, "worker_slots": 3, "unmatched": "wait"}


@pytest.fixture
def job(submit):
    """Return a function that submits a job with so many slots and returns its id."""
    return lambda slots, **fields: submit(worker_slots=slots, unmatched="wait", **fields)["id"]


@pytest.fixture
def read(api):
    viewer = api("viewer")
    return lambda job: viewer.get(f"/jobs/{job}").json()


def claimed(worker, limit=10, **fields):
    return [attempt["job"]["id"] for attempt in worker.claim(limit=limit, **fields)]


def age(job, seconds):
    WorkerJob.objects.filter(pk=job).update(available_at=F("available_at") - timedelta(seconds=seconds))


def test_a_job_uses_one_slot_unless_it_says_otherwise(worker, submit, job, read):
    assert submit()["worker_slots"] == 1
    assert read(job(4))["worker_slots"] == 4
    one = worker(max_concurrent=8)
    assert [attempt["job"]["worker_slots"] for attempt in one.claim(limit=8)] == [1, 4]


def test_a_claim_gives_no_more_slots_than_are_free(worker, job):
    jobs = [job(2) for _ in range(3)]
    one = worker(max_concurrent=5)
    assert claimed(one) == jobs[:2]
    assert claimed(one) == []
    assert sum(Attempt.objects.live().values_list("worker_slots", flat=True)) == 4


def test_the_limit_of_a_claim_counts_jobs_and_not_slots(worker, job):
    jobs = [job(4), job(4)]
    assert claimed(worker(max_concurrent=8), limit=1) == jobs[:1]


def test_a_job_that_needs_more_slots_than_are_free_is_passed_over(worker, job):
    first, large, small = job(1), job(4), job(1)
    one = worker(max_concurrent=4)
    assert claimed(one, limit=1) == [first]
    assert claimed(one) == [small]
    assert WorkerJob.objects.get(pk=large).state == "PENDING"


def test_after_a_minute_smaller_jobs_wait_behind_it_until_its_slots_are_free(worker, job):
    first, large, small = job(1), job(4), job(1)
    age(first, 70), age(large, 61)
    one = worker(max_concurrent=4)
    [held] = one.claim(limit=1)
    answer = one.post(f"/servers/{one.id}/claims", {"limit": 3}).json()
    assert answer == {"attempts": [], "slots_wanted": 4}
    one.start(held), one.complete(held)
    answer = one.post(f"/servers/{one.id}/claims", {"limit": 4}).json()
    assert [attempt["job"]["id"] for attempt in answer["attempts"]] == [large]
    assert answer["slots_wanted"] == 1, "the small job waits for a slot"
    assert WorkerJob.objects.get(pk=small).state == "PENDING"


def test_a_worker_that_is_too_small_takes_the_jobs_behind_it_however_long_it_waits(worker, job):
    large, small = job(4), job(1)
    age(large, 3600)
    assert claimed(worker(max_concurrent=3)) == [small]


def test_a_job_claimed_ahead_counts_its_slots_too(worker, job):
    jobs = [job(2) for _ in range(4)]
    one = worker(max_concurrent=2)
    assert claimed(one, limit=1) == jobs[:1]
    assert claimed(one, limit=0, ahead=3) == jobs[1:2]
    assert claimed(one, limit=0, ahead=3) == []


def test_the_used_slots_are_shown_with_the_server(worker, job, api):
    one = worker(max_concurrent=4)
    job(3)
    one.hold()
    [server] = api("viewer").get("/servers").json()["items"]
    assert (server["used_slots"], server["max_concurrent"]) == (3, 4)
    assert [attempt["worker_slots"] for attempt in server["attempts"]] == [3]
    count_history()
    total = HistoryEntry.objects.exclude(slots_free=None).first()
    assert (total.slots_used, total.slots_free) == (3, 1)


def test_placement_says_whether_a_worker_has_too_few_slots_or_too_few_free_ones(worker, job, submit):
    small, large = worker(name="small", max_concurrent=2), worker(name="large", max_concurrent=4)
    job(1), large.hold()
    waiting = job(4)
    answer = submit.client.get(f"/jobs/{waiting}/placement").json()
    assert {row["server"]["name"]: (row["filter"], row["detail"]) for row in answer["ruled_out"]} == {
        "small": ("slots", "it has 2 slots, but the job needs 4"),
        "large": ("capacity", "1 of 4 in use"),
    }
    assert claimed(small) == claimed(large) == []


@pytest.mark.parametrize(("waited", "failed"), [(UNMATCHED - 1, False), (UNMATCHED + 1, True)])
def test_a_job_that_needs_more_slots_than_any_worker_has_fails_in_time(worker, submit, read, clock, waited, failed):
    large, fitting, one = submit(worker_slots=5)["id"], submit(worker_slots=4)["id"], worker(max_concurrent=4)
    pass_time(clock, waited, one)
    assert sweep.run_sweep()["unmatched"] == ({"FAILED": 1} if failed else {})
    if failed:
        error = read(large)["error"]
        assert (error["code"], error["message"]) == (
            "NO_MATCHING_WORKER", "No active worker with required tags has the 5 slots that it needs",
        )  # fmt: skip
    assert read(fitting)["state"] == "PENDING"


def test_a_large_job_waits_while_one_worker_with_its_tags_is_large_enough(worker, submit, read, clock):
    large = submit(worker_slots=5)["id"]
    one, other = worker(name="one", max_concurrent=4), worker(name="other", max_concurrent=5)
    pass_time(clock, UNMATCHED + 1, one, other)
    assert sweep.run_sweep()["unmatched"] == {}
    assert read(large)["state"] == "PENDING"


def test_a_large_job_that_may_wait_is_flagged_until_a_worker_is_large_enough(worker, job, read, api):
    worker(name="one", max_concurrent=4)
    large = job(5)
    assert read(large)["flags"] == ["waits_for_slots"]
    assert api("viewer").get("/instance").json()["flagged"]["waits_for_slots"] == 1
    worker(name="two", max_concurrent=5)
    assert read(large)["flags"] == []


def test_a_large_job_without_a_worker_with_its_tags_is_flagged_for_the_tags(worker, job, read):
    worker(max_concurrent=4)
    assert read(job(5, tags=["gpu"]))["flags"] == ["waits_for_tags"]


def test_a_job_that_requires_a_worker_needs_one_with_enough_slots(worker, submit):
    worker(max_concurrent=4)
    body = {"action": SCRIPT, "require_worker": True}
    refused = submit.client.post("/jobs", {**body, "worker_slots": 5})
    assert (refused.status_code, refused.json()["filter"]) == (503, "slots")
    assert submit.client.post("/jobs", {**body, "worker_slots": 4}).status_code == 201
    assert submit.client.post("/jobs", [body, {**body, "worker_slots": 5}]).status_code == 503


@pytest.mark.parametrize("slots", [0, -1, 1001, 1.5, "2", True, None])
def test_slots_are_a_whole_number_from_1_to_1000(submit, slots):
    answer = submit.client.post("/jobs", {"action": SCRIPT, "worker_slots": slots})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["worker_slots"])


def test_steps_have_slots_and_executions_refuse_them(submit, api, worker):
    child = {"type": "execution", "name": "c", "steps": [STEP]}
    refused = submit.client.post("/jobs", {"action": child, "worker_slots": 2})
    assert "give them to its steps" in refused.json()["errors"]["worker_slots"][0]
    assert submit.client.post("/executions", {"name": "e", "steps": [STEP]}).status_code == 201
    [attempt] = worker(max_concurrent=4).claim()
    assert attempt["job"]["worker_slots"] == 3


def test_the_action_of_a_trigger_has_slots(api, worker):
    operator = api("operator")
    begins = {"name": "t", "cron": "* * * * *", "execution": {"name": "e", "steps": [STEP]}}
    trigger = operator.post("/triggers", {**begins, "action": SCRIPT, "worker_slots": 3}).json()
    assert trigger["worker_slots"] == 3
    assert operator.post(f"/triggers/{trigger['id']}/evaluate", {}).status_code in (200, 201, 202)
    [attempt] = worker(max_concurrent=4).claim()
    assert attempt["job"]["worker_slots"] == 3


def test_a_job_of_the_project_and_a_repeated_job_have_their_slots(submit, worker, read, api):
    job = in_process.submit(SCRIPT, worker_slots=3, unmatched="wait")
    [attempt] = worker(max_concurrent=4).claim()
    assert attempt["job"] | {"id": str(job), "worker_slots": 3} == attempt["job"]
    failing = submit(worker_slots=2, unmatched="wait")["id"]
    api("operator").post(f"/jobs/{failing}/cancel", {})
    again = api("operator").post(f"/jobs/{failing}/resubmit", {}).json()
    assert again["worker_slots"] == 2


def test_a_hint_waits_until_the_slots_of_the_job_are_free(worker, job):
    job(1)
    one = worker(max_concurrent=4)
    held = one.hold()
    job(4)
    assert one.get(f"/servers/{one.id}/hints").json() == {"work": False}
    one.complete(held)
    assert one.get(f"/servers/{one.id}/hints").json() == {"work": True}


def test_the_items_of_a_loop_have_the_slots_of_its_step(begin, do):
    begin(step("each", for_each="$.inputs.files", worker_slots=2), inputs={"files": [1, 2]})
    assert [attempt["job"]["worker_slots"] for attempt in do.take().values()] == [2, 2]
