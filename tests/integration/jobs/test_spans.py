"""Spans of OpenTelemetry for submissions, claims and attempts; a new attempt links to the lost one.

Without OpenTelemetry nothing changes.
"""

import subprocess
import sys

import pytest

from controlplane.agent import tracing
from controlplane.agent.runners.runner import job_environment
from controlplane.agent.tracing import AttemptSpans
from jobs import in_process
from jobs.models import WorkerJob
from tests.integration.jobs.test_traces import OTHER, SCRIPT, TRACE
from tests.support.spans import record, require_sdk
from tests.support.standin import ROOT


@pytest.fixture
def client(api):
    return api("client")


@pytest.fixture
def spans(monkeypatch):
    """Return a function that lists the ended spans in order."""
    require_sdk()
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracer = record(exporter).get_tracer("tests")
    monkeypatch.setattr(tracing, "get_tracer", lambda: tracer)
    return exporter.get_finished_spans


def text(context):
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def began(worker):
    """Claim an attempt and begin its code as an agent does. Return its spans."""
    (attempt,) = worker.claim(limit=1)
    made = AttemptSpans(attempt)
    (answer,) = worker.report({"attempt": attempt["id"], "event": "STARTED", **made.fields()})
    assert answer["accepted"], answer
    attempt["job"]["traceparent"] = made.begin_code()
    return attempt, made


def test_a_submission_is_a_span_in_the_trace_of_its_caller_and_the_jobs_remember_it(client, spans):
    first = client.post("/jobs", SCRIPT, traceparent=TRACE).json()
    many = client.post("/jobs", [SCRIPT, {**SCRIPT, "traceparent": OTHER}]).json()["items"]
    one, two = spans()
    assert (one.name, text(one.context)) == ("job submit", first["traceparent"])
    assert text(one.parent) == TRACE and two.parent is None
    assert [job["traceparent"] for job in many] == [text(two.context), OTHER]


def test_what_a_project_submits_in_process_is_in_the_trace_of_its_code(db, spans):
    with tracing.get_tracer().start_as_current_span("theirs"):
        job = in_process.submit(**SCRIPT)
    submitted, theirs = spans()
    assert submitted.parent.span_id == theirs.context.span_id
    assert WorkerJob.objects.get(pk=job).traceparent == text(submitted.context)


def test_an_attempt_is_a_span_in_that_of_its_claim_which_is_in_the_trace_of_the_job(client, worker, spans):
    job = client.post("/jobs", {**SCRIPT, "traceparent": TRACE}).json()["id"]
    attempt, made = began(worker())
    made.end({"event": "FAILED", "error": {"code": "EXIT_3"}})
    _, claim, run = spans()
    assert (claim.name, run.name) == ("job claim", "job attempt")
    assert text(claim.parent) == TRACE and run.parent.span_id == claim.context.span_id
    assert job_environment(attempt, {})["TRACEPARENT"] == text(run.context)
    assert (run.status.is_ok, run.status.description) == (False, "EXIT_3")
    assert run.attributes["controlplane.job.id"] == job and run.attributes["controlplane.attempt.number"] == 1
    assert not claim.links


def test_what_was_resubmitted_links_to_the_claim_of_the_attempt_that_was_lost(client, worker, spans):
    client.post("/jobs", SCRIPT, traceparent=TRACE)
    one = worker()
    attempt, _ = began(one)
    assert attempt["job"]["former_traceparent"] is None
    operate = client.post(f"/jobs/{attempt['job']['id']}/resubmit", {})
    assert operate.status_code in (200, 201), operate.json()
    one.beat(stopped=[attempt["id"]])
    again, made = began(one)
    assert again["number"] == 2
    made.end({"event": "COMPLETED"})
    submit, first, second, run = spans()
    [link] = second.links
    assert text(link.context) == text(first.context) == again["job"]["former_traceparent"]
    assert run.status.is_unset and run.context.trace_id == submit.context.trace_id


def test_a_job_that_is_submitted_again_links_to_the_last_attempt_of_the_first(client, worker, spans):
    job = client.post("/jobs", SCRIPT).json()["id"]
    one = worker()
    attempt, made = began(one)
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "X"}})
    anew = client.post(f"/jobs/{job}/resubmit", {}).json()["id"]
    again, second = began(one)
    assert again["job"]["id"] == anew != job
    assert again["job"]["former_traceparent"] == made.fields()["traceparent"] != second.fields()["traceparent"]


def test_a_workers_trace_is_valid_or_refused(client, worker):
    client.post("/jobs", SCRIPT)
    one = worker()
    (attempt,) = one.claim()
    report = {"attempt": attempt["id"], "event": "STARTED"}
    assert one.post(f"/servers/{one.id}/reports", [{**report, "traceparent": "x"}]).status_code == 400
    assert one.report({**report, "traceparent": OTHER})[0]["accepted"]
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "a test"})
    assert one.claim()[0]["job"]["former_traceparent"] == OTHER


def test_without_it_the_trace_of_the_job_continues_unchanged():
    code = (
        "import sys; sys.modules['opentelemetry.trace'] = sys.modules['opentelemetry'] = None\n"
        "from controlplane.agent.tracing import AttemptSpans, current_traceparent, span_of_submission\n"
        f"made = AttemptSpans({{'id': 'a', 'number': 1, 'job': {{'id': 'j', 'traceparent': {TRACE!r}}}}})\n"
        "print(made.fields(), made.begin_code(), made.end(None), current_traceparent())\n"
        f"with span_of_submission({OTHER!r}) as trace: print(trace)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{{}} {TRACE} None None", OTHER], done.stderr
