"""Calls of operators at the same time as calls of workers, with real commits and connections."""

import pytest
from django.db import transaction

from jobs.models import Attempt, WorkerJob
from jobs.services import interventions, recovery
from liveness.errors import NotInMaintenance
from liveness.models import ApiToken, ServerEvent
from liveness.services import detection, maintenance
from tests.integration.jobs.test_interventions import AT_ONCE, CALLS
from tests.integration.races import test_hot_paths as hot
from tests.support.clock import Clock


def refused(call, job):
    try:
        getattr(interventions, f"{call}_job")(job, "operator:olaf")
    except Exception as refusal:
        return refusal.code, refusal.facts["state"]


@pytest.mark.parametrize("call", CALLS)
def test_a_completion_that_is_being_written_wins(committed, threads, call):
    (job,) = hot.submit_many(1)
    one = committed()
    attempt = one.hold()
    with transaction.atomic():
        assert one.complete(attempt, 42)["accepted"]
        later = threads(refused, call, job)
        assert hot.someone_waits()
    assert later.result(10) == ("job_ended", "COMPLETED")
    assert WorkerJob.objects.values_list("state", "output").get() == ("COMPLETED", 42)


@pytest.mark.parametrize(("call", "accepted", "state"), [
    ("cancel", True, "COMPLETED"), ("resubmit", False, "PENDING"), ("fail", False, "FAILED"),
])  # fmt: skip
def test_an_intervention_that_is_being_written_wins_but_a_cancel_loses_to_success(
    committed, threads, call, accepted, state
):
    (job,) = hot.submit_many(1)
    one = committed()
    attempt = one.hold()
    with transaction.atomic():
        assert refused(call, job) is None
        later = threads(one.complete, attempt, 42)
        assert hot.someone_waits()
    assert later.result(10)["accepted"] == accepted
    assert WorkerJob.objects.get().state == state


@pytest.mark.parametrize(("call", "job_state", "attempt_state"), [
    ("cancel", "CLAIMED", "CLAIMED"), ("resubmit", "PENDING", "REQUEUED"), ("fail", "FAILED", "FAILED"),
])  # fmt: skip
def test_a_claim_that_is_being_written_is_seen(committed, threads, call, job_state, attempt_state):
    (job,) = hot.submit_many(1)
    one = committed()
    with transaction.atomic():
        one.claim()
        later = threads(refused, call, job)
        assert hot.someone_waits()
    assert later.result(10) is None
    row = WorkerJob.objects.get()
    assert (row.state, Attempt.objects.get().state) == (job_state, attempt_state)
    assert (row.cancel_requested_at is not None) == (call == "cancel")


def test_a_start_that_is_being_written_is_seen(committed, threads):
    (job,) = hot.submit_many(1)
    one = committed()
    attempt = one.hold(running=False)
    with transaction.atomic():
        one.start(attempt)
        later = threads(refused, "resubmit", job)
        assert hot.someone_waits()
    assert later.result(10) is None
    assert Attempt.objects.get().state == "RESUBMITTED"


def test_a_recovery_that_is_being_written_leaves_a_waiting_job(committed, threads):
    (job,) = hot.submit_many(1)
    one = committed(config=AT_ONCE)
    one.hold()
    one.beat(state="ERROR")
    with transaction.atomic():
        assert recovery.recover_attempts() == {"RESUBMITTED": 1}
        later = threads(refused, "resubmit", job)
        assert hot.someone_waits()
    assert later.result(10) == ("job_waiting", "PENDING")


def test_ten_calls_with_one_key_all_return_the_same_new_job(committed, threads):
    (job,) = hot.submit_many(1)
    WorkerJob.objects.update(state="EXPIRED", finished_at="2026-01-01T00:00:00Z")
    calls = [threads(interventions.resubmit_job, job, "operator:olaf", None, "k") for _ in range(10)]
    answers = [call.result(20) for call in calls]
    assert len({new for new, _ in answers}) == 1 and sum(is_new for _, is_new in answers) == 1
    assert WorkerJob.objects.count() == 2


def test_of_ten_at_once_that_move_a_job_one_does(committed, threads):
    (job,) = hot.submit_many(1)
    committed().hold()
    answers = [future.result(20) for future in [threads(refused, "resubmit", job) for _ in range(10)]]
    assert sorted(answers, key=str) == [("job_waiting", "PENDING")] * 9 + [None]
    assert ApiToken.objects.filter(role="client").count() == 1


@pytest.mark.parametrize("cluster", ["", "eu"])
def test_maintenance_that_is_ended_as_its_time_is_over_ends_once(committed, threads, cluster):
    committed(cluster="eu")
    maintenance.enter_maintenance("operator:ann", "x", seconds=60, cluster=cluster)
    Clock().advance(60)
    with transaction.atomic():
        assert detection.end_expired_maintenance() == 1
        later = threads(maintenance.exit_maintenance, "operator:ann", "x", cluster)
        assert hot.someone_waits()
    with pytest.raises(NotInMaintenance):
        later.result(10)
    assert ServerEvent.objects.get(action="maintenance_exit").actor == "liveness"
