"""The demo's failing jobs are too rare to make the verdict worry, so it is green again after the accident."""

from collections import deque
from itertools import islice

import pytest

from controlplane.demo.__main__ import BETWEEN_EXECUTIONS, BETWEEN_JOBS
from controlplane.demo.plan import demo_executions
from controlplane.demo.shift import demo_jobs
from controlplane.demo.work import is_refused
from jobs.services.liveness_check import check_liveness

HOURS = 4
WINDOW = 300
"""Seconds of failures that the verdict counts."""


def is_failing(job):
    action = job["action"]
    return action.get("path", "").endswith(":send_invoice") and is_refused(job["payload"]["customer"])


def failures_by_time():
    """Return the failing jobs and steps of the plan, with the second of each submission."""
    seconds = HOURS * 3600
    jobs = [(n * BETWEEN_JOBS, job) for n, job in enumerate(islice(demo_jobs(), int(seconds / BETWEEN_JOBS)))]
    runs = enumerate(islice(demo_executions(), int(seconds / BETWEEN_EXECUTIONS)))
    steps = [(n * BETWEEN_EXECUTIONS, step) for n, run in runs for step in run["steps"]]
    return sorted(((at, job) for at, job in jobs + steps if is_failing(job)), key=lambda pair: pair[0])


def worst_window():
    """Return the failing jobs of the two WINDOWs in which they are most frequent."""
    within, worst = deque(), []
    for at, job in failures_by_time():
        within.append((at, job))
        while within[0][0] <= at - 2 * WINDOW:  # a job may wait, or run late, for up to another window
            within.popleft()
        worst = max(worst, [job for _, job in within], key=len)
    return worst


@pytest.mark.django_db
def test_the_demo_has_some_failing_jobs_and_the_verdict_stays_green(api, worker, clock):
    one, viewer, client = worker(tags=["python", "script"]), api("viewer"), api("client")
    check_liveness()
    worst = worst_window()
    assert worst
    for job in worst:
        submitted = {"action": job["action"], "payload": job["payload"]}
        assert client.post("/jobs", submitted).status_code == 201
        error = {"code": "ConnectionError", "message": "refused"}
        assert one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": error})[0]["accepted"]
    verdict = viewer.get("/instance").json()["verdict"]
    assert [(concern["kind"], concern["tone"]) for concern in verdict["concerns"]] == [("failures", "note")]
    assert verdict["tone"] == "well"
