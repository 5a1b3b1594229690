"""*Dump stack…*: an operator sees what the code of a running job does."""

import pytest

from liveness.models import ServerEvent
from tests.support.executions import SCRIPT
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/jobs/"


@pytest.fixture
def browser(staff):
    return staff("dump_workerjob", checks_csrf=False)


@pytest.fixture
def running(submit, worker):
    job, server = submit()["id"], worker()
    return job, server, server.hold()["id"]


def dump(browser, job, state="RUNNING", attempt=""):
    return browser.post(f"{PAGES}dump_stack/?pick={job}", {"seen": f"{job} {state} {attempt}".strip(), "note": "hangs"})


def test_a_stack_is_requested_with_a_heartbeat_and_shown(browser, running):
    job, server, attempt = running
    assert server.beat().json()["dump"] == []
    assert "Dump stack…" in browser.get(f"{PAGES}{job}/").content.decode()
    assert dump(browser, job, attempt=attempt).status_code == 302
    assert server.beat().json()["dump"] == [attempt] == server.beat(running=[{"attempt": attempt}]).json()["dump"]
    assert "the worker reports it with one of its next heartbeats" in browser.get(f"{PAGES}{job}/").content.decode()
    [result] = server.report({"attempt": attempt, "event": "STACK", "text": 'File "report.py", line 7 in <module>'})
    assert result["accepted"]
    page = browser.get(f"{PAGES}{job}/").content.decode()
    assert "report.py&quot;, line 7 in &lt;module&gt;" in page and "Stack of attempt 1" in page
    assert server.beat().json()["dump"] == []
    [event] = ServerEvent.objects.filter(action="dump_stack")
    assert (event.actor, event.reason, event.subject_id) == ("operator:ann", "hangs", job)


def test_a_later_stack_replaces_the_earlier_one(browser, running):
    job, server, attempt = running
    dump(browser, job, attempt=attempt)
    server.report(*({"attempt": attempt, "event": "STACK", "text": text} for text in ("first", "second")))
    dump(browser, job, attempt=attempt)
    page = browser.get(f"{PAGES}{job}/").content.decode()
    assert "second" in page and "first" not in page and "Requested" in page


def test_two_requests_before_the_report_are_one(browser, running):
    job, _, attempt = running
    assert [dump(browser, job, attempt=attempt).status_code for _ in range(2)] == [302, 302]
    assert actions() == ["dump_stack"]


def test_a_job_without_running_code_has_no_stack(browser, submit, worker, begin):
    waiting = submit()["id"]
    assert "Dump stack…" not in browser.get(f"{PAGES}{waiting}/").content.decode()
    answer = dump(browser, waiting, "PENDING")
    assert answer.status_code == 409 and "no code of it runs" in answer.content.decode()
    child = {"key": "a", "action": {"type": "execution", "name": "x", "steps": [{"key": "b", "action": SCRIPT}]}}
    assert "Dump stack…" not in browser.get(f"{PAGES}{begin(child).step('a')['job']}/").content.decode()


def test_a_stack_of_an_attempt_that_was_taken_away_is_refused(browser, running, submit):
    job, server, attempt = running
    dump(browser, job, attempt=attempt)
    submit.client.post(f"/jobs/{job}/resubmit", {})
    [result] = server.report({"attempt": attempt, "event": "STACK", "text": "late"})
    assert (result["accepted"], result["code"]) == (False, "attempt_superseded")
    assert server.beat().json()["dump"] == []


@pytest.mark.parametrize("wrong", [{}, {"text": "x" * 65_537}, {"text": "x", "lines": ["y"]}])
def test_a_report_of_a_stack_needs_a_text_of_limited_length(running, wrong):
    _, server, attempt = running
    answer = server.post(
        f"/servers/{server.id}/reports", {"reports": [{"attempt": attempt, "event": "STACK", **wrong}]}
    )
    assert answer.status_code == 400


def test_a_reader_may_not_dump_a_stack(reader, running):
    job, *_ = running
    assert "Dump stack…" not in reader.get(f"{PAGES}{job}/").content.decode()
    assert reader.get(f"{PAGES}dump_stack/?pick={job}").status_code == 403
