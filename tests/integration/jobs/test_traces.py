"""A trace goes from the submitting client to the code of the job, in every attempt."""

import pytest

from controlplane.agent.runners.runner import job_environment

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
SCRIPT = {"action": {"type": "script", "command": "true"}}
WRONG = ["", "x", TRACE.upper(), TRACE[:-1], f"01{TRACE[2:]}", f"00-{'0' * 32}-00f067aa0ba902b7-01"]


@pytest.fixture
def client(api):
    return api("client")


def trace_of_claim(worker):
    (attempt,) = worker.claim(limit=1)
    environment = job_environment(attempt, {})
    assert environment.get("TRACEPARENT") == attempt["job"]["traceparent"]
    return attempt["job"]["traceparent"]


def test_a_claim_has_the_trace_of_the_header_unless_the_body_has_one(client, worker):
    first = client.post("/jobs", SCRIPT, traceparent=TRACE).json()
    second = client.post("/jobs", {**SCRIPT, "traceparent": OTHER}, traceparent=TRACE).json()
    listed = client.post("/jobs", [SCRIPT, {**SCRIPT, "traceparent": OTHER}], traceparent=TRACE).json()
    none = client.post("/jobs", SCRIPT).json()
    submitted = [first, second, *listed["items"], none]
    assert [job["traceparent"] for job in submitted] == [TRACE, OTHER, TRACE, OTHER, None]
    one = worker()
    assert [trace_of_claim(one) for _ in submitted] == [TRACE, OTHER, TRACE, OTHER, None]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_trace_is_passed_over_as_a_header_and_refused_in_a_body(client, wrong):
    assert client.post("/jobs", SCRIPT, traceparent=wrong).json()["traceparent"] is None
    refused = client.post("/jobs", {**SCRIPT, "traceparent": wrong})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["traceparent"])


def test_the_same_job_submitted_again_in_another_trace_is_the_same_job(client):
    keyed = {**SCRIPT, "key": "once"}
    first = client.post("/jobs", keyed, traceparent=TRACE)
    again = client.post("/jobs", keyed, traceparent=OTHER)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"] and again.json()["traceparent"] == TRACE


def test_the_next_attempt_has_it_too_and_so_has_the_job_that_is_submitted_again(client, worker):
    job = client.post("/jobs", {**SCRIPT, "max_retries": 1}, traceparent=TRACE).json()["id"]
    one = worker()
    for _ in range(2):
        attempt = one.hold()
        assert attempt["job"]["traceparent"] == TRACE
        assert one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "X"}})[0]["accepted"]
    anew = client.post(f"/jobs/{job}/resubmit", {}).json()
    assert anew["id"] != job and anew["traceparent"] == TRACE
