"""Strict serializers return what the framework would return."""

import pytest
from rest_framework import serializers

from controlplane.core.problems import key_by_index
from controlplane.core.rest import validate_body
from jobs.api.serializers.executions import JobList, SubmissionRequest
from jobs.api.serializers.reports import ReportItem, ReportsRequest
from jobs.api.serializers.workers import ClaimRequest, HeartbeatRequest

ATTEMPT = "01890000-0000-7000-8000-000000000000"
SCRIPT = {"type": "script", "command": "true"}
BODIES = [
    (ClaimRequest, {}),
    (ClaimRequest, {"limit": 5, "request_id": ATTEMPT}),
    (ClaimRequest, {"limit": "5", "request_id": None}),
    (HeartbeatRequest, {"state": "RUNNING", "metrics": {"load": 1}, "running": [{"attempt": ATTEMPT}]}),
    (HeartbeatRequest, {"state": "ASLEEP", "metrics": dict.fromkeys(map(str, range(101)), 1), "running": [{}]}),
    (ReportItem, {"attempt": ATTEMPT, "event": "COMPLETED", "output": None}),
    (ReportItem, {"attempt": ATTEMPT, "event": "FAILED", "error": {"code": "E"}}),
    (ReportItem, {"attempt": ATTEMPT, "event": "FAILED"}),
    (ReportItem, {"event": "PROGRESS", "progress": 2, "lines": [], "sequence": 1.5}),
    (ReportsRequest, {}),
    (ReportsRequest, {"reports": [{"attempt": ATTEMPT, "event": "STARTED"}, {"attempt": "x", "event": 1}]}),
    (SubmissionRequest, {"action": SCRIPT, "tags": ["gpu"], "good_until": None, "payload": {"n": 1}}),
    (SubmissionRequest, {"action": {**SCRIPT, "resources": {"cpus": 0}}, "priority": 1001, "name": ""}),
    (SubmissionRequest, {"action": {"type": "execution", "name": "x", "steps": [{"key": "a", "action": SCRIPT}]}}),
]


def result(validate):
    try:
        return validate()
    except serializers.ValidationError as error:
        return error.get_full_details()


@pytest.mark.parametrize(("serializer", "body"), BODIES)
def test_bodies_are_read_and_refused_as_the_framework_does(serializer, body):
    lean = [result(lambda: validate_body(serializer, body)) for _ in range(2)]
    assert lean == [result(lambda: serializer().run_validation(body))] * 2


@pytest.mark.parametrize("body", [None, [], "text", {"limit": 1, "unknown": 1}])
def test_what_is_no_body_is_refused_in_the_same_words_however_often_it_comes(body):
    refusals = [result(lambda: validate_body(ClaimRequest, body)) for _ in range(2)]
    fresh = ClaimRequest(data=body)
    assert not fresh.is_valid()
    assert refusals == [serializers.ValidationError(fresh.errors).get_full_details()] * 2


def test_a_refused_list_of_jobs_names_the_job_and_leaves_no_state_behind():
    good, bad = {"action": SCRIPT}, {"action": SCRIPT, "priority": "high"}
    refusal = key_by_index(result(lambda: validate_body(JobList, [good, bad])))
    assert {place: list(fields) for place, fields in refusal.items()} == {1: ["priority"]}
    assert len(validate_body(JobList, [good, good])) == 2
