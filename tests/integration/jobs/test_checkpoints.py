"""Checkpoints: data that the code of a job keeps for its next attempt, so that a loss costs minutes and not the run."""

import pytest

from controlplane.agent.limits import CHECKPOINT_LIMIT
from controlplane.core.json_bodies import size_of
from jobs.models import LateReport, WorkerJob
from jobs.services import claiming
from jobs.services.liveness_check import check_liveness
from tests.integration.races.test_hot_paths import IMMEDIATELY, round_trips
from tests.support.people import employ
from tests.support.reports import brief, build_report

ROW = {"row": 40_000, "file": "é"}
ERROR = {"code": "ValueError", "message": "no"}


def kept(one, value=ROW, attempt=None):
    """Return the result of a checkpoint report."""
    return brief(one.worker.report(build_report(attempt or one.attempt, "CHECKPOINT", value=value)))[0]


def claimed_checkpoint(worker):
    """Return the checkpoint that the next attempt gets."""
    (attempt,) = worker.claim(limit=1)
    return attempt["job"]["checkpoint"]


def test_a_job_without_a_checkpoint_shows_that_it_has_none(worker, submit):
    job = submit()
    assert (job["checkpoint"], job["checkpoint_at"]) == (None, None)
    assert claimed_checkpoint(worker()) is None


def test_the_last_checkpoint_stays_with_the_job(held):
    one = held()
    assert kept(one, {"row": 1}) == (True, False, "RUNNING", None)
    assert kept(one) == kept(one) == (True, False, "RUNNING", None)
    job = one.read_job()
    assert job["checkpoint"] == ROW
    assert job["checkpoint_at"]


@pytest.mark.parametrize("value", [0, "", False, [], {}, "é\U0001f600", [1, {"a": None}], 1.5, 2**53])
def test_any_json_may_be_a_checkpoint(held, value):
    one = held()
    kept(one, value)
    assert one.read_job()["checkpoint"] == value


def test_null_drops_it(held):
    one = held()
    kept(one)
    assert kept(one, None) == (True, False, "RUNNING", None)
    assert (one.read_job()["checkpoint"], one.read_job()["checkpoint_at"]) == (None, None)


def test_a_report_without_a_value_is_refused(held):
    one = held()
    answer = one.worker.post(
        f"/servers/{one.worker.id}/reports", {"reports": [build_report(one.attempt, "CHECKPOINT")]}
    )
    assert answer.status_code == 400


def test_it_is_stored_in_one_round_trip_with_the_other_reports(held):
    one = held(running=False)
    reports = [
        build_report(one.attempt, "STARTED"),
        build_report(one.attempt, "CHECKPOINT", value=1),
        build_report(one.attempt, "PROGRESS", progress=1),
        build_report(one.attempt, "CHECKPOINT", value=ROW),
        build_report(one.attempt, "COMPLETED", output=1),
    ]
    assert round_trips(one.worker, f"/servers/{one.worker.id}/reports", {"reports": reports}) == 1
    assert (one.read_job()["state"], one.read_job()["checkpoint"]) == ("COMPLETED", ROW)


def test_up_to_64_kib_are_kept_and_what_is_larger_is_refused_for_itself(held):
    one = held()
    most = "x" * (CHECKPOINT_LIMIT - size_of(""))
    assert kept(one, most) == (True, False, "RUNNING", None)
    results = one.worker.report(
        build_report(one.attempt, "CHECKPOINT", value=most + "x"), build_report(one.attempt, "PROGRESS", progress=0.5)
    )
    assert brief(results) == [
        (False, False, "RUNNING", "checkpoint_too_large"),
        (True, False, "RUNNING", None),
    ]
    assert results[0]["detail"] == "The checkpoint has 65537 bytes of JSON; the limit is 65536."
    assert one.read_job()["checkpoint"] == most


def test_nothing_is_kept_of_code_that_was_not_started(held):
    one = held(running=False)
    assert kept(one) == (False, False, "CLAIMED", "not_started")
    assert one.read_job()["checkpoint"] is None


def lose(one, worker, clock, api):
    clock.advance(46)
    check_liveness()


def retry(one, worker, clock, api):
    one.report("FAILED", error=ERROR)


def release(one, worker, clock, api):
    one.report("RELEASED", reason="drain_deadline")


def move(one, worker, clock, api):
    assert api("operator").post(f"/jobs/{one.job}/resubmit", {}).status_code == 200
    one.worker.obey()


@pytest.mark.parametrize("end", [lose, retry, release, move])
def test_the_next_attempt_finds_it_and_the_last_one_changes_it_no_more(held, worker, clock, api, end):
    one = held(worker_says={"config": IMMEDIATELY}, max_retries=1)
    kept(one)
    end(one, worker, clock, api)
    other = worker()
    assert claimed_checkpoint(other) == ROW
    accepted, _, _, code = kept(one, {"row": 1})
    assert (accepted, code) == (False, "attempt_superseded")
    assert one.read_job()["checkpoint"] == ROW
    assert not LateReport.objects.exists()


def test_a_repeated_claim_brings_it_again(held, worker):
    one = held(max_retries=1)
    kept(one)
    one.report("FAILED", error=ERROR)
    request = {"request_id": "0198a5c0-0000-7000-8000-000000000001"}
    claimed = [worker_claim["job"]["checkpoint"] for worker_claim in one.worker.claim(limit=1, **request)]
    assert claimed == [again["job"]["checkpoint"] for again in one.worker.claim(limit=1, **request)] == [ROW]


def test_after_the_end_the_same_checkpoint_is_a_repeat_and_another_is_refused(held):
    one = held()
    kept(one)
    one.report("FAILED", error=ERROR)
    assert kept(one) == (True, True, "FAILED", None)
    assert kept(one, {"row": 1}) == (False, False, "FAILED", "attempt_superseded")
    assert one.read_job()["checkpoint"] == ROW


@pytest.mark.parametrize("keep", [None, True, False])
@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_a_job_resubmitted_by_hand_continues_unless_it_must_begin_again(held, worker, api, state, keep):
    one = held()
    kept(one)
    if state == "FAILED":
        one.report("FAILED", error=ERROR)
    body = {} if keep is None else {"keep_checkpoint": keep}
    answer = api("operator").post(f"/jobs/{one.job}/resubmit", body)
    assert answer.status_code == (200 if state == "RUNNING" else 201)
    one.worker.obey()
    assert answer.json()["checkpoint"] == (None if keep is False else ROW)
    assert (answer.json()["checkpoint_at"] is None) == (keep is False)
    assert claimed_checkpoint(worker()) == (None if keep is False else ROW)
    assert state == "RUNNING" or one.read_job()["checkpoint"] == ROW


def test_a_repeated_call_that_moved_a_job_drops_nothing_of_the_next_attempt(held, api):
    one, operator, once = held(), api("operator"), {"Idempotency-Key": "k"}
    kept(one)
    operator.post(f"/jobs/{one.job}/resubmit", {"keep_checkpoint": False}, **once)
    one.worker.obey()
    next_one = one.worker.hold()
    kept(one, {"row": 2}, next_one)
    assert operator.post(f"/jobs/{one.job}/resubmit", {"keep_checkpoint": False}, **once).status_code == 200
    assert (one.read_job()["state"], one.read_job()["checkpoint"]) == ("RUNNING", {"row": 2})


def test_a_list_leaves_out_what_is_large(held, submit):
    one = held()
    kept(one, "x" * 20_000)
    (listed,) = submit.client.get("/jobs").json()["items"]
    assert (listed["checkpoint"], listed["left_out"]) == (None, ["checkpoint"])
    assert one.read_job()["checkpoint"] == "x" * 20_000


def test_a_claim_brings_as_many_checkpoints_as_one_answer_holds(held, worker, submit, monkeypatch):
    monkeypatch.setattr(claiming, "ANSWER_LIMIT", 10_000)
    submit(), submit()
    WorkerJob.objects.update(checkpoint="x" * 20_000)
    assert [len(worker().claim(limit=2)) for _ in range(3)] == [1, 1, 0]


def test_the_page_of_a_job_shows_it(held, client):
    one = held()
    kept(one, {"row": "forty <b>thousand</b>"})
    client.force_login(employ("jobs.view_workerjob"))
    text = client.get(f"/admin/instance/jobs/{one.job}/").content.decode()
    assert "<h3>Checkpoint</h3>" in text
    assert "forty &lt;b&gt;thousand" in text


@pytest.mark.parametrize("drop", [True, False])
def test_on_the_page_it_may_be_dropped(held, client, drop):
    one = held()
    kept(one)
    client.force_login(employ("jobs.view_workerjob", "jobs.resubmit_workerjob"))
    attempt = one.attempt["id"]
    form = {"note": "why", "seen": f"{one.job} RUNNING {attempt}"} | ({"drop_checkpoint": "on"} if drop else {})
    path = f"/admin/instance/jobs/resubmit/?pick={one.job}"
    assert "Delete the checkpoint" in client.get(path).content.decode()
    assert client.post(path, form).status_code == 302
    assert (one.read_job()["state"], one.read_job()["checkpoint"]) == ("PENDING", None if drop else ROW)
