"""Reports of workers on their attempts, and the fence that checks them."""

import json
import uuid

import pytest

from controlplane.agent.limits import SIZE_LIMIT
from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from tests.support.reports import brief, build_report
from tests.support.transitions import put

CRASH = {"code": "WORKER_CRASHED", "message": "signal 9"}
ERROR = {"code": "ValueError", "message": "no", "traceback": "line 1"}
ENDS = {
    "COMPLETED": {"output": {"answer": 42}},
    "FAILED": {"error": ERROR},
    "RELEASED": {"reason": "fenced"},
}
SAYINGS = {"STARTED": {}, "PROGRESS": {"progress": 0.5}, **ENDS}


def stored(attempt_id):
    return Attempt.objects.filter(pk=attempt_id).values().get(), WorkerJob.objects.values().get()


def test_a_job_is_started_and_completed(held):
    one = held(running=False)
    assert one.report("STARTED") == (True, False, "RUNNING", None)
    assert (one.read_job()["state"], one.read_job()["attempts"][0]["state"]) == ("RUNNING", "RUNNING")
    assert one.report("COMPLETED", output={"answer": 42}) == (True, False, "COMPLETED", None)
    job = one.read_job()
    assert (job["state"], job["output"], job["error"]) == ("COMPLETED", {"answer": 42}, None)
    assert job["finished_at"] and job["attempts"][0]["finished_at"]


@pytest.mark.parametrize("output", [None, 0, "", False, [], {}, "é\U0001f600", [1, {"a": None}], 1.5, 2**53])
def test_any_json_may_be_an_output(held, output):
    one = held()
    one.report("COMPLETED", output=output)
    assert one.read_job()["output"] == output


def test_a_failure_has_its_error(held):
    one = held()
    assert one.report("FAILED", error=ERROR) == (True, False, "FAILED", None)
    job = one.read_job()
    assert (job["state"], job["error"], job["output"]) == ("FAILED", ERROR, None)
    assert job["attempts"][0]["error"] == ERROR
    assert job["resubmissions"] == 0


def test_progress_is_shown(held):
    one = held()
    one.report("PROGRESS", progress=0.25, message="a quarter")
    one.report("PROGRESS", progress=0.5)
    attempt = one.read_job()["attempts"][0]
    assert (attempt["progress"], attempt["message"]) == (0.5, "a quarter")


@pytest.mark.parametrize(("running", "end"), [(True, "RESUBMITTED"), (False, "RELEASED")])
def test_what_a_worker_releases_goes_back_to_the_queue_uncounted_and_at_once(held, running, end):
    one = held(running=running)
    assert one.report("RELEASED", reason="fenced") == (True, False, end, None)
    job = one.read_job()
    assert (job["state"], job["resubmissions"], job["retries"]) == ("PENDING", 0, 0)
    assert [entry["reason"] for entry in job["timeline"] if entry["state"] == end] == ["fenced"]
    assert one.worker.claim(limit=1)[0]["number"] == 2


@pytest.mark.parametrize("event", ["COMPLETED", "FAILED", "PROGRESS"])
def test_nothing_is_taken_of_code_that_was_not_started(held, event):
    one = held(running=False)
    before = stored(one.attempt["id"])
    assert one.report(event, **SAYINGS[event]) == (False, False, "CLAIMED", "not_started")
    assert stored(one.attempt["id"]) == before


@pytest.mark.parametrize("event", ["COMPLETED", "FAILED", "PROGRESS"])
def test_started_earlier_in_the_same_call_counts_and_later_does_not(held, event):
    early = held(running=False)
    items = [build_report(early.attempt, "STARTED"), build_report(early.attempt, event, **SAYINGS[event])]
    assert [accepted for accepted, *_ in brief(early.worker.report(*items))] == [True, True]
    late = held(running=False)
    items = [build_report(late.attempt, event, **SAYINGS[event]), build_report(late.attempt, "STARTED")]
    assert brief(late.worker.report(*items)) == [
        (False, False, "CLAIMED", "not_started"),
        (True, False, "RUNNING", None),
    ]


@pytest.mark.parametrize("together", [True, False], ids=["in one call", "in two calls"])
@pytest.mark.parametrize("event", ["STARTED", *ENDS])
def test_a_report_that_comes_twice_is_replayed_and_changes_nothing(held, event, together):
    one = held(running=event != "STARTED")
    item = build_report(one.attempt, event, **SAYINGS[event])
    first, second = brief(one.worker.report(item, item)) if together else (
        brief(one.worker.report(item))[0],
        None,
    )  # fmt: skip
    before = stored(one.attempt["id"])
    second = second or brief(one.worker.report(item))[0]
    assert first[:2] == (True, False)
    assert second == (True, True, first[2], None)
    assert stored(one.attempt["id"]) == before
    assert not LateReport.objects.exists()


@pytest.mark.parametrize("output", [10**22, 12345678901234567890123, 0.1, 1e-300, 1e300, {"b": 1, "a": [1.0]}])
def test_an_output_with_unusual_numbers_is_replayed_too(held, output):
    one = held()
    one.report("COMPLETED", output=output)
    assert one.report("COMPLETED", output=output) == (True, True, "COMPLETED", None)


@pytest.mark.parametrize("event", ["STARTED", "PROGRESS"])
@pytest.mark.parametrize("end", ["COMPLETED", "FAILED"])
def test_a_report_from_before_the_end_may_be_repeated_after_it(held, event, end):
    one = held()
    one.report(end, **ENDS[end])
    assert one.report(event, **SAYINGS[event])[:2] == (True, True)


@pytest.mark.parametrize(
    ("event", "first", "second"),
    [
        ("COMPLETED", {"output": 1}, {"output": 2}),
        ("COMPLETED", {"output": 1}, {}),
        ("COMPLETED", {"output": None}, {"output": 0}),
        ("FAILED", {"error": ERROR}, {"error": {**ERROR, "message": "yes"}}),
    ],
)
def test_the_same_end_with_another_content_conflicts_and_is_kept_but_not_applied(held, event, first, second):
    one = held()
    one.report(event, **first)
    before = stored(one.attempt["id"])
    assert one.report(event, **second) == (False, False, event, "conflicting_report")
    assert stored(one.attempt["id"]) == before
    assert [(late["event"], late["reason"]) for late in one.read_job()["late_reports"]] == [
        (event, "conflicting_report")
    ]


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in ENDS for b in ENDS if a != b])
def test_an_attempt_ends_once_and_other_ends_are_refused_and_kept(held, first, second):
    one = held()
    one.report(first, **ENDS[first])
    before = stored(one.attempt["id"])
    accepted, replayed, state, code = one.report(second, **ENDS[second])
    assert (accepted, replayed, state) == (False, False, before[0]["state"])
    assert code in ("attempt_superseded", "conflicting_report")
    assert stored(one.attempt["id"]) == before
    assert [late["event"] for late in one.read_job()["late_reports"]] == [second]


@pytest.mark.parametrize("again", [True, False], ids=["claimed again", "pending"])
@pytest.mark.parametrize("event", SAYINGS)
def test_after_recovery_every_word_of_the_loser_is_refused(held, worker, clock, event, again):
    one = held(worker_says={"config": {"worker_task_restart_strategy": "IMMEDIATELY"}})
    clock.advance(46)
    heir = worker(name="heir")
    check_liveness()
    if again:
        assert heir.hold()["number"] == 2
    before = stored(one.attempt["id"])
    assert one.report(event, **SAYINGS[event]) == (False, False, "RESUBMITTED", "attempt_superseded")
    assert stored(one.attempt["id"]) == before
    if event != "PROGRESS":
        (late,) = one.read_job()["late_reports"]
        assert (late["attempt"], late["event"], late["reason"]) == (one.attempt["id"], event, "attempt_superseded")
        assert late["at"]


@pytest.mark.parametrize("strategy", ["AFTER_TERMINATION_GRACE_PERIOD", "NEVER"])
@pytest.mark.parametrize("event", SAYINGS)
@pytest.mark.parametrize("state", ["NOT_RUNNING", "INACTIVE"])
def test_the_dead_are_answered_with_every_item_refused(held, state, event, strategy):
    one = held(worker_says={"config": {"worker_task_restart_strategy": strategy}})
    put(Server.objects.get(pk=one.worker.id), state)
    before = stored(one.attempt["id"])
    results = brief(one.worker.report(*[build_report(one.attempt, event, **SAYINGS[event])] * 2))
    assert results == [(False, False, "RUNNING", "attempt_superseded")] * 2
    assert stored(one.attempt["id"]) == before


@pytest.mark.parametrize("state", ["MAINTENANCE", "ERROR", "DISCONNECTED", "TERMINATING", "TERMINATED_GRACEFULLY"])
def test_a_server_that_is_not_dead_yet_still_completes(held, state):
    one = held()
    put(Server.objects.get(pk=one.worker.id), state)
    assert one.report("COMPLETED", output=1) == (True, False, "COMPLETED", None)


def test_one_refused_report_spoils_no_other_and_results_come_in_order(worker, submit):
    for _ in range(3):
        submit()
    one, other = worker(name="one"), worker(name="other")
    first, second, others = one.hold(), one.hold(running=False), other.hold()
    unknown = {"id": str(uuid.uuid4())}
    results = one.report(
        build_report(unknown, "COMPLETED"),
        build_report(second, "COMPLETED"),
        build_report(others, "COMPLETED"),
        build_report(first, "COMPLETED"),
        build_report(second, "STARTED"),
    )
    assert [result["attempt"] for result in results] == [row["id"] for row in (unknown, second, others, first, second)]
    assert [result["accepted"] for result in results] == [False, False, False, True, True]
    assert results[0]["state"] is results[2]["state"] is None
    assert Attempt.objects.get(pk=others["id"]).state == "RUNNING"
    assert not LateReport.objects.exists()


@pytest.mark.parametrize(
    ("on_worker_lost", "end", "state"), [("RESUBMIT", "RESUBMITTED", "PENDING"), ("FAIL",) + ("FAILED",) * 2]
)
def test_a_crash_of_the_code_that_its_worker_reports_is_a_loss(held, on_worker_lost, end, state):
    one = held(on_worker_lost=on_worker_lost)
    assert one.report("FAILED", error=CRASH) == (True, False, end, None)
    job = one.read_job()
    assert (job["state"], job["resubmissions"]) == (state, int(state == "PENDING"))
    assert job["attempts"][0]["error"] == CRASH
    assert job["error"] == (CRASH if state == "FAILED" else None)
    assert one.report("FAILED", error=CRASH) == (True, True, end, None)


def sized(event, size):
    """Return the content of a report of this event with exactly so many bytes of compact JSON in UTF-8."""
    if event == "COMPLETED":
        return {"output": "é" * ((size - 2) // 2) + "x" * (size % 2)}
    error = {"code": "ValueError", "message": "", "traceback": ""}
    error["message"] = "x" * (size - len(json.dumps(error, separators=(",", ":"))))
    return {"error": error}


@pytest.mark.parametrize(("event", "field"), [("COMPLETED", "output"), ("FAILED", "error")])
def test_at_the_limit_of_its_size_a_report_is_taken(held, event, field):
    one = held()
    fields = sized(event, SIZE_LIMIT)
    assert one.report(event, **fields) == (True, False, event, None)
    assert one.read_job()[field] == fields[field]


@pytest.mark.parametrize("event", ["COMPLETED", "FAILED"])
def test_one_byte_above_the_limit_is_refused_and_spoils_no_other_report(worker, submit, event):
    for _ in range(2):
        submit()
    one = worker()
    large, small = one.hold(running=False), one.hold()
    field = {"COMPLETED": "output", "FAILED": "error"}[event]
    results = one.report(
        build_report(large, "STARTED"),
        build_report(large, event, **sized(event, SIZE_LIMIT + 1)),
        build_report(small, "COMPLETED", output=1),
    )
    assert [result["accepted"] for result in results] == [True, False, True]
    assert (results[1]["state"], results[1]["code"]) == ("RUNNING", f"{field}_too_large")
    assert str(SIZE_LIMIT) in results[1]["detail"] and str(SIZE_LIMIT + 1) in results[1]["detail"]
    assert "detail" not in results[0] | results[2]
    states = {str(a.pk): (a.state, a.job.state) for a in Attempt.objects.select_related("job")}
    assert states == {large["id"]: ("RUNNING", "RUNNING"), small["id"]: ("COMPLETED", "COMPLETED")}
    assert not LateReport.objects.exists()


def test_after_a_refusal_for_its_size_the_attempt_can_still_end(held):
    one = held()
    assert one.report("COMPLETED", **sized("COMPLETED", SIZE_LIMIT + 1))[3] == "output_too_large"
    assert one.report("FAILED", error=ERROR) == (True, False, "FAILED", None)


def test_what_is_too_large_is_not_kept_as_a_late_report_either(held, clock):
    one = held(worker_says={"config": {"worker_task_restart_strategy": "IMMEDIATELY"}})
    clock.advance(46)
    check_liveness()
    assert one.report("COMPLETED", **sized("COMPLETED", SIZE_LIMIT + 1)) == (
        False, False, "RESUBMITTED", "output_too_large"
    )  # fmt: skip
    assert not LateReport.objects.exists()
