"""Superseded reports are judged all at once, and only some reports of each attempt are stored."""

import pytest
from django.db import connection

from jobs.models import LateReport
from jobs.services.rejected_reports import KEPT
from liveness.models import Tally
from tests.support.queries import CapturedQueries
from tests.support.reports import brief, build_report

MANY = 300
QUERIES = 60
"""Limit for a call with any number of reports: at most a dozen rounds of a few statements each."""


def kept():
    return list(LateReport.objects.values_list("body__output", "more"))


def ends(attempt, numbers):
    return [build_report(attempt, "COMPLETED", output=number) for number in numbers]


def test_some_superseded_reports_are_kept_and_the_last_shows_that_more_came(held):
    one = held()
    one.report("COMPLETED", output="first")
    one.worker.report(*ends(one.attempt, range(KEPT)))
    assert kept() == [(number, False) for number in range(KEPT)]
    one.worker.report(*ends(one.attempt, range(KEPT)))  # the same reports again
    assert kept() == [(number, False) for number in range(KEPT)]
    results = one.worker.report(*ends(one.attempt, range(KEPT - 1, KEPT + 5)))
    assert set(brief(results)) == {(False, False, "COMPLETED", "conflicting_report")}
    assert kept() == [(number, number == KEPT - 1) for number in range(KEPT)]
    assert sum(Tally.objects.filter(name="late_reports").values_list("number", flat=True)) == KEPT
    late_reports = one.read_job()["late_reports"]
    assert [late["more"] for late in late_reports] == [False] * (KEPT - 1) + [True]


def test_the_limit_is_crossed_in_the_middle_of_a_call_too(held):
    one = held()
    one.report("COMPLETED", output="first")
    one.worker.report(*ends(one.attempt, range(KEPT - 3)))
    one.worker.report(*ends(one.attempt, range(KEPT + 3)))
    assert kept() == [(number, number == KEPT - 1) for number in range(KEPT)]


def test_the_limit_is_of_each_attempt(held, submit):
    one = held()
    submit()
    other = one.worker.hold()
    for attempt in one.attempt, other:
        one.worker.report(*ends(attempt, ["first"]), *ends(attempt, range(KEPT + 1)))
    assert LateReport.objects.filter(attempt=other["id"]).count() == KEPT == LateReport.objects.count() / 2


EVENTS = {
    "COMPLETED": lambda number: {"output": [number] * 20},
    "FAILED": lambda number: {"error": {"code": str(number), "message": ""}},
    "RELEASED": lambda number: {"reason": str(number)},
    "CANCELLED": lambda number: {},
    "STARTED": lambda number: {},
    "PROGRESS": lambda number: {"progress": number / MANY},
    "LOG": lambda number: {"stream": "STDOUT", "lines": [str(number)]},
}
CALLS = {**{event: [event] for event in EVENTS}, "all in turn": list(EVENTS)}


@pytest.mark.parametrize("running", [True, False], ids=["running", "claimed"])
@pytest.mark.parametrize("events", CALLS.values(), ids=CALLS)
def test_a_call_with_hundreds_of_reports_of_one_attempt_takes_a_few_statements(held, events, running):
    one = held(running=running)
    reports = [
        build_report(one.attempt, event, **EVENTS[event](number))
        for number in range(MANY // len(events))
        for event in events
    ]  # fmt: skip
    with CapturedQueries(connection) as queries:
        results = one.worker.report(*reports)
    assert len(results) == len(reports)
    assert len(queries) < QUERIES
    assert LateReport.objects.count() <= KEPT


def test_the_last_of_several_progress_reports_in_a_call_counts(held):
    one = held()
    reports = [
        build_report(one.attempt, "PROGRESS", progress=n / 10, **({"message": str(n)} if n < 5 else {}))
        for n in range(9)
    ]
    assert set(brief(one.worker.report(*reports))) == {(True, False, "RUNNING", None)}
    attempt = one.read_job()["attempts"][0]
    assert (attempt["progress"], attempt["message"]) == (0.8, "4")


def test_several_reports_on_one_attempt_are_applied_in_order(held):
    one = held(running=False)
    results = one.worker.report(
        build_report(one.attempt, "COMPLETED", output=1),
        build_report(one.attempt, "CANCELLED"),
        build_report(one.attempt, "STARTED"),
        build_report(one.attempt, "STARTED"),
        build_report(one.attempt, "CANCELLED"),
        build_report(one.attempt, "PROGRESS", progress=0.5),
        build_report(one.attempt, "COMPLETED", output=2),
        build_report(one.attempt, "COMPLETED", output=2),
        build_report(one.attempt, "STARTED"),
        build_report(one.attempt, "RELEASED", reason="x"),
    )
    assert brief(results) == [
        (False, False, "CLAIMED", "not_started"),
        (False, False, "CLAIMED", "cancel_not_requested"),
        (True, False, "RUNNING", None),
        (True, True, "RUNNING", None),
        (False, False, "RUNNING", "cancel_not_requested"),
        (True, False, "RUNNING", None),
        (True, False, "COMPLETED", None),
        (True, True, "COMPLETED", None),
        (True, True, "COMPLETED", None),
        (False, False, "COMPLETED", "attempt_superseded"),
    ]
    assert one.read_job()["output"] == 2
