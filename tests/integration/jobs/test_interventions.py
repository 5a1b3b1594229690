"""Clients cancel, move and fail their own jobs, operators all jobs: each action is applied once or refused."""

import uuid

import pytest
from django.db import connection

from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services import interventions, submission
from jobs.services.liveness_check import check_liveness
from jobs.states import TERMINAL, JobState
from liveness.models import ServerEvent
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.queries import CapturedQueries

CALLS = ["cancel", "resubmit", "fail"]
SCRIPT = {"type": "script", "command": "true"}
ERROR = {"code": "ValueError", "message": "no"}
AT_ONCE = {"worker_task_restart_strategy": "IMMEDIATELY"}


def submitter():
    """Return a client with its own name, and its token."""
    text = tokens.create_token("ann", "client")
    return Caller(text), tokens.find_token(text)


@pytest.fixture
def put(worker):
    """Return a function that makes a job in a state, `put("RUNNING")`, with its worker, attempt and client."""

    class Put:
        def __init__(self, state, config=None, **fields):
            self.client, owner = submitter()
            (job,) = submission.submit_jobs(owner, [{"action": {**SCRIPT, "runner": "local"}, **fields}])
            self.id = job.id
            self.worker = worker(config=config or {})
            self.attempt = None
            if state in ("CLAIMED", "RUNNING", "COMPLETED", "FAILED"):
                self.attempt = self.worker.hold(running=state != "CLAIMED")
            if state == "COMPLETED":
                self.report("COMPLETED", output=1)
            elif state == "FAILED":
                self.report("FAILED", error=ERROR)
            elif state == "CANCELLED":
                self.call("cancel")
            elif state == "EXPIRED":
                WorkerJob.objects.filter(pk=self.id).update(state=state, finished_at="2026-01-01T00:00:00Z")
            assert self.read_job()["state"] == state

        def call(self, call, caller=None, **body):
            return (caller or self.client).post(f"/jobs/{self.id}/{call}", body)

        def report(self, event, **more):
            return self.worker.report({"attempt": self.attempt["id"], "event": event, **more})[0]

        def read_job(self):
            return self.client.get(f"/jobs/{self.id}").json()

    return Put


def refusal(answer):
    body = answer.json()
    return answer.status_code, body["code"], body.get("state")


def ends(job):
    """Return how the job and its only attempt ended, with actor and reason."""
    attempt = Attempt.objects.get(job=job.id)
    return WorkerJob.objects.get(pk=job.id).state, attempt.state, attempt.ended_by, attempt.reason


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("role", "status"), [("client", 404), ("operator", 200), ("viewer", 403), ("worker", 403), (None, 401)]
)
def test_a_client_reaches_its_own_jobs_and_an_operator_all(put, api, role, status, call):
    job = put("RUNNING")
    before = job.read_job()
    caller = Caller(None) if role is None else api(role)
    assert job.call(call, caller).status_code == status
    assert (job.read_job() != before) == (status == 200)


@pytest.mark.parametrize(
    ("call", "state"),
    [("cancel", "PENDING"), ("cancel", "RUNNING"), ("resubmit", "RUNNING"), ("fail", "PENDING"), ("fail", "RUNNING")],
)
def test_who_intervened_and_why_is_known_of_clients_too(put, staff, call, state):
    job = put(state)
    assert job.call(call, note="sent twice").status_code == 200
    event = ServerEvent.objects.get(action=f"{call}_job", subject_id=str(job.id))
    assert (event.actor, event.note) == ("client:ann", "sent twice")
    pages = staff()
    assert "sent twice" in pages.get(f"/admin/instance/jobs/{job.id}/").content.decode().partition("Manual actions")[2]
    assert "sent twice" in pages.get("/admin/instance/activity/?who=client:ann").content.decode()


@pytest.mark.parametrize("call", CALLS)
def test_a_server_token_intervenes_nowhere(put, call):
    job = put("RUNNING")
    assert refusal(job.call(call, job.worker)) == (403, "wrong_role", None)


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_job_is_a_404(api, call):
    answer = api("operator").post(f"/jobs/{uuid.uuid4()}/{call}", {})
    assert refusal(answer) == (404, "not_found", None)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", [{"nonsense": 1}, [], None, "x", {"reason": 1}], ids=str)
def test_a_wrong_body_is_a_400_and_changes_nothing(put, call, body):
    job = put("RUNNING")
    before = job.read_job()
    assert refusal(job.client.post(f"/jobs/{job.id}/{call}", body)) == (400, "invalid", None)
    assert job.read_job() == before


@pytest.mark.parametrize("call", CALLS)
def test_no_body_at_all_is_taken(put, call):
    job = put("RUNNING")
    assert job.client.call("POST", f"/jobs/{job.id}/{call}", b"").status_code == 200


@pytest.mark.parametrize("state", ["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED"])
@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_one_round_trip_whatever_the_job_is(put, call, state):
    job = put(state)
    with CapturedQueries(connection) as queries:
        try:
            getattr(interventions, f"{call}_job")(job.id, "operator:o")
        except Exception as refused:
            assert refused.status == 409
    assert len(queries) == 1


def test_a_waiting_job_is_cancelled_at_once(put):
    job = put("PENDING")
    answer = job.call("cancel")
    body = answer.json()
    assert (answer.status_code, body["state"], body["error"]) == (200, "CANCELLED", None)
    assert body["finished_at"] and body["cancel_requested_at"] is None
    assert not job.worker.claim()


@pytest.mark.parametrize("state", ["CLAIMED", "RUNNING"])
def test_the_worker_of_a_live_job_gets_its_cancellation(put, state):
    job = put(state)
    assert job.worker.beat().json()["cancel"] == []
    answer = job.call("cancel")
    body = answer.json()
    assert (answer.status_code, body["state"], body["finished_at"]) == (200, state, None)
    assert body["cancel_requested_at"]
    assert WorkerJob.objects.get(pk=job.id).cancel_requested_observed is not None
    assert job.worker.beat().json()["cancel"] == [job.attempt["id"]]
    assert job.report("CANCELLED")["accepted"]
    assert ends(job)[:2] == ("CANCELLED", "CANCELLED")


@pytest.mark.parametrize("state", ["CLAIMED", "RUNNING"])
def test_a_cancel_that_is_repeated_changes_nothing(put, clock, state):
    job = put(state)
    job.call("cancel")
    before, row = job.read_job(), WorkerJob.objects.values().get(pk=job.id)
    clock.advance(5)
    answer = job.call("cancel")
    assert (answer.status_code, answer.json()) == (200, before)
    assert WorkerJob.objects.values().get(pk=job.id) == row


@pytest.mark.parametrize("state", sorted(TERMINAL - {JobState.SKIPPED}))
@pytest.mark.parametrize("call", ["cancel", "fail"])
def test_an_ended_job_is_neither_cancelled_nor_failed(put, state, call):
    job = put(state)
    before = job.read_job()
    assert refusal(job.call(call)) == (409, "job_ended", state)
    assert job.read_job() == before


@pytest.mark.parametrize(
    ("event", "more"),
    [("FAILED", {"error": ERROR}), ("FAILED", {"error": {"code": "WORKER_CRASHED", "message": ""}}),
     ("RELEASED", {"reason": "drained"}), ("CANCELLED", {})],
    ids=["failed", "crashed", "released", "cancelled"],
)  # fmt: skip
def test_after_a_cancel_whatever_ends_the_attempt_cancels_the_job(put, event, more):
    job = put("RUNNING", max_retries=5)
    job.call("cancel")
    assert job.report(event, **more)["accepted"]
    assert ends(job)[:2] == ("CANCELLED", "CANCELLED")
    assert job.read_job()["retries"] == job.read_job()["resubmissions"] == 0
    assert not job.worker.claim()


@pytest.mark.parametrize("state", ["CLAIMED", "RUNNING"])
@pytest.mark.parametrize("on_worker_lost", ["RESUBMIT", "FAIL"])
def test_after_a_cancel_the_loss_of_the_worker_cancels_the_job(put, clock, state, on_worker_lost):
    job = put(state, config=AT_ONCE, on_worker_lost=on_worker_lost)
    job.call("cancel")
    clock.advance(46)
    check_liveness()
    assert ends(job)[:2] == ("CANCELLED", "CANCELLED")


def test_after_a_cancel_a_completion_still_wins(put):
    job = put("RUNNING")
    job.call("cancel")
    assert job.report("COMPLETED", output=42)["accepted"]
    assert (job.read_job()["state"], job.read_job()["output"]) == ("COMPLETED", 42)
    assert refusal(job.call("cancel")) == (409, "job_ended", "COMPLETED")


@pytest.mark.parametrize(("state", "end"), [("CLAIMED", "REQUEUED"), ("RUNNING", "RESUBMITTED")])
@pytest.mark.parametrize("role", ["client", "operator"])
def test_a_live_job_moves_now_and_its_old_worker_must_stop(put, state, end, role):
    job = put(state)
    answer = job.call("resubmit", None if role == "client" else Caller(tokens.create_token("olaf", "operator")))
    body = answer.json()
    name = {"client": "ann", "operator": "olaf"}[role]
    assert (answer.status_code, body["id"], body["state"]) == (200, str(job.id), "PENDING")
    assert ends(job) == ("PENDING", end, f"{role}:{name}", f"resubmitted by {name}")
    assert (body["resubmissions"], body["retries"], body["error"], body["finished_at"]) == (0, 0, None, None)
    assert body["timeline"][-1]["reason"] == f"resubmitted by {name}"
    beat = job.worker.beat(running=[{"attempt": job.attempt["id"]}]).json()
    assert beat["lost"] == [job.attempt["id"]]
    if state == "RUNNING":
        assert job.worker.claim() == []
        assert job.worker.beat().json()["lost"] == []
    again = job.worker.hold()
    assert (again["job"]["id"], again["number"]) == (str(job.id), 2)


def test_the_late_report_of_the_old_worker_is_refused_and_kept(put, worker):
    job = put("RUNNING")
    job.call("resubmit")
    heir = worker(name="heir")
    job.worker.obey()
    second = heir.hold()
    late = job.report("COMPLETED", output="late")
    assert (late["accepted"], late["code"]) == (False, "attempt_superseded")
    assert LateReport.objects.get().event == "COMPLETED"
    assert heir.complete(second, "right")["accepted"]
    assert job.read_job()["output"] == "right"


@pytest.mark.parametrize("how_often", [5])
def test_moving_a_job_counts_as_no_loss(put, settings, how_often):
    settings.JOBS = {"MAX_RESUBMISSIONS": 0}
    job = put("RUNNING", on_worker_lost="FAIL")
    for _ in range(how_often):
        assert job.call("resubmit").json()["state"] == "PENDING"
        job.worker.obey()
        job.worker.hold()
    assert job.read_job()["resubmissions"] == 0


def test_the_same_call_with_a_key_moves_a_live_job_once_whatever_became_of_it_since(put, worker):
    job = put("RUNNING")
    again = {"Idempotency-Key": "k"}
    moved = job.client.post(f"/jobs/{job.id}/resubmit", {}, **again)
    assert (moved.status_code, moved.json()["state"]) == (200, "PENDING")
    while_it_waits = job.client.post(f"/jobs/{job.id}/resubmit", {}, **again)
    assert (while_it_waits.status_code, while_it_waits.json()["state"]) == (200, "PENDING")
    job.worker.obey()
    heir = worker(name="heir")
    second = heir.hold()
    while_it_runs = job.client.post(f"/jobs/{job.id}/resubmit", {}, **again)
    assert (while_it_runs.status_code, while_it_runs.json()["state"]) == (200, "RUNNING")
    heir.report({"attempt": second["id"], "event": "FAILED", "error": ERROR})
    when_it_failed = job.client.post(f"/jobs/{job.id}/resubmit", {}, **again)
    assert (when_it_failed.status_code, when_it_failed.json()["id"]) == (200, str(job.id))
    assert WorkerJob.objects.count() == 1
    another = job.client.post(f"/jobs/{job.id}/resubmit", {}, **{"Idempotency-Key": "l"})
    assert another.status_code == 201


CONTENT = {
    "payload": {"x": [1, None]}, "tags": ["a"], "priority": 3, "timeout_seconds": 9.5, "on_worker_lost": "FAIL",
    "unmatched": "wait", "max_retries": 2, "retry_delay_seconds": 1.5, "retry_backoff": "exponential",
    "retry_on": ["X"], "good_until": "2100-01-01T00:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "EXPIRED"])
@pytest.mark.parametrize("role", ["client", "operator"])
def test_a_job_that_ended_without_success_becomes_a_new_one_of_its_owner(put, api, state, role):
    job = put("PENDING", key="k", **CONTENT)
    error = ERROR if state == "FAILED" else None
    WorkerJob.objects.filter(pk=job.id).update(state=state, error=error, finished_at="2026-01-01T00:00:00Z")
    before = job.read_job()
    answer = job.call("resubmit", None if role == "client" else api("operator"))
    new = answer.json()
    assert answer.status_code == 201
    assert job.read_job() == {**before, "resubmitted_as": new["id"]}
    assert (new["state"], new["resubmission_of"], new["key"], new["error"]) == ("PENDING", str(job.id), None, None)
    assert {field: new[field] for field in CONTENT} == CONTENT
    assert new["action"] == before["action"] and new["required_tags"] == ["a", "script"]
    assert new["id"] != before["id"] and new["attempts"] == []
    assert job.client.get(f"/jobs/{new['id']}").json() == new
    assert new["available_at"] >= new["created_at"][:19]


def resubmitted(job, key, caller=None, **body):
    return (caller or job.client).post(f"/jobs/{job.id}/resubmit", body, **{"Idempotency-Key": key})


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "EXPIRED"])
def test_with_the_same_key_a_job_is_submitted_again_once(put, api, state):
    job = put(state)
    first, again = resubmitted(job, "k"), resubmitted(job, "k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == resubmitted(job, "k", api("operator")).json()
    assert (first.json()["key"], first.json()["resubmission_of"]) == ("k", str(job.id))
    assert refusal(resubmitted(job, "other"))[:2] == (409, "already_resubmitted")
    assert resubmitted(job, "other", force=True).json()["id"] != first.json()["id"]
    assert WorkerJob.objects.count() == 3


def test_a_key_that_another_job_has_is_a_409_and_submits_nothing(put):
    job = put("FAILED")
    taken = job.client.post("/jobs", {"action": SCRIPT, "key": "k"}).json()
    answer = resubmitted(job, "k")
    assert refusal(answer) == (409, "key_conflict", None)
    assert answer.json()["job"] == taken["id"]
    assert WorkerJob.objects.count() == 2


def test_a_job_that_completed_is_not_resubmitted_with_a_key_either(put):
    assert refusal(resubmitted(put("COMPLETED"), "k")) == (409, "job_ended", "COMPLETED")


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_without_text_or_too_long_a_one_is_a_400(put, key):
    answer = resubmitted(put("FAILED"), key)
    assert refusal(answer) == (400, "invalid", None)
    assert "Idempotency-Key" in answer.json()["errors"]


def test_a_resubmitted_job_does_not_expire_by_a_moment_that_has_passed(put):
    job = put("EXPIRED", good_until="2020-01-01T00:00:00Z")
    assert job.call("resubmit").json()["good_until"] is None


def test_a_resubmitted_job_that_was_for_later_still_is(put):
    job = put("CANCELLED", available_at="2100-01-01T00:00:00Z")
    assert job.call("resubmit").json()["available_at"] == "2100-01-01T00:00:00Z"


@pytest.mark.parametrize(("state", "code"), [("PENDING", "job_waiting"), ("COMPLETED", "job_ended")])
def test_a_job_that_waits_or_is_completed_is_not_resubmitted(put, state, code):
    job = put(state)
    before = job.read_job()
    assert refusal(job.call("resubmit")) == (409, code, state)
    assert job.read_job() == before
    assert WorkerJob.objects.count() == 1


@pytest.mark.parametrize("state", ["CLAIMED", "RUNNING"])
def test_a_job_that_is_being_cancelled_is_not_resubmitted(put, state):
    job = put(state)
    job.call("cancel")
    before = job.read_job()
    assert refusal(job.call("resubmit")) == (409, "cancel_requested", state)
    assert job.read_job() == before


def test_a_job_that_was_cancelled_while_it_ran_is_submitted_again(put):
    job = put("RUNNING")
    job.call("cancel")
    job.report("CANCELLED")
    new = job.call("resubmit").json()
    assert (new["state"], new["cancel_requested_at"]) == ("PENDING", None)


@pytest.mark.parametrize("state", ["PENDING", "CLAIMED", "RUNNING"])
@pytest.mark.parametrize("role", ["client", "operator"])
def test_a_job_that_has_not_ended_is_failed_without_a_retry(put, state, role):
    job = put(state, max_retries=5, retry_on=["FAILED_BY_OPERATOR"])
    caller = None if role == "client" else Caller(tokens.create_token("olaf", "operator"))
    answer = job.call("fail", caller, reason="it is wrong")
    body = answer.json()
    name = {"client": "ann", "operator": "olaf"}[role]
    assert (answer.status_code, body["state"], body["retries"]) == (200, "FAILED", 0)
    assert body["error"] == {"code": "FAILED_BY_OPERATOR", "message": "it is wrong", "by": f"{role}:{name}"}
    assert body["finished_at"]
    assert not job.worker.claim()
    if state == "PENDING":
        assert body["attempts"] == []
    else:
        assert ends(job) == ("FAILED", "FAILED", f"{role}:{name}", f"failed by {name}")
        assert body["attempts"][0]["error"] == body["error"]
        assert job.worker.beat(running=[{"attempt": job.attempt["id"]}]).json()["lost"] == [job.attempt["id"]]
        assert job.report("COMPLETED" if state == "RUNNING" else "STARTED")["code"] == "attempt_superseded"


@pytest.mark.parametrize("body", [{}, {"reason": ""}], ids=str)
def test_a_failure_without_a_reason_names_its_actor(put, body):
    assert put("RUNNING").call("fail", **body).json()["error"]["message"] == "failed by ann"


def test_a_job_that_is_being_cancelled_may_still_be_failed(put):
    job = put("RUNNING")
    job.call("cancel")
    assert job.call("fail").json()["state"] == "FAILED"
