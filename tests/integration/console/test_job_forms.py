"""Forms of jobs: *New job…*, *Run again…*, *Edit…*, and *Run now*."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.models import Hold, WorkerJob
from liveness.models import ServerEvent
from tests.support.forms import fields_of
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/"
SCRIPT = {"type": "script", "command": "true"}
NEW = {"command": "echo hello", "payload": '{"a": 1}', "tags": "gpu, eu", "priority": "7", "note": "a test"}


@pytest.fixture
def browser(staff):
    return staff("add_workerjob", "change_workerjob", checks_csrf=False)


def test_a_job_is_submitted_by_a_form(browser):
    assert "New job…" in browser.get(f"{PAGES}jobs/").content.decode()
    assert "Command" in browser.get(f"{PAGES}jobs/add/").content.decode()
    answer = browser.post(f"{PAGES}jobs/add/", NEW)
    job = WorkerJob.objects.get()
    assert answer.headers["Location"] == f"{PAGES}jobs/{job.pk}/"
    assert job.action["command"] == "echo hello"
    assert (job.payload, job.tags, job.priority, job.owner.name) == ({"a": 1}, ["eu", "gpu"], 7, "ann")
    [event] = ServerEvent.objects.filter(action="submit_job")
    assert (event.subject_id, event.actor, event.reason) == (str(job.pk), "operator:ann", "a test")


def test_any_action_can_be_written_as_json(browser):
    browser.post(f"{PAGES}jobs/add/", {**NEW, "command": '{"type": "callable", "path": "os:getpid"}'})
    assert WorkerJob.objects.get().action["type"] == "callable"


def test_a_form_that_is_sent_twice_submits_one_job(browser):
    for priority in ("7", "7", "8"):
        browser.post(f"{PAGES}jobs/add/", {**NEW, "key": "k", "priority": priority})
    assert sorted(WorkerJob.objects.values_list("priority", flat=True)) == [7, 8]
    assert actions() == ["submit_job", "submit_job"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"command": ""}, "This field is required."),
        ({"command": '{"type": "x"}'}, "Must be one of"),
        ({"payload": "{"}, "This is not JSON: line 1"),
        ({"priority": "high"}, "whole number"),
        ({"tags": "x" * 300}, "tag"),
    ],
)
def test_an_invalid_form_of_a_job_submits_nothing(browser, wrong, named):
    answer = browser.post(f"{PAGES}jobs/add/", {**NEW, **wrong})
    assert (answer.status_code, WorkerJob.objects.count()) == (200, 0)
    assert named in answer.content.decode()


def test_a_refusal_of_the_service_is_shown_with_its_status(browser):
    wanted = '{"type": "callable", "path": "os:getpid"}'
    held = {"kind": "action", "value": "callable", "by": "operator:o", "note": "broken", "mode": "refuse"}
    Hold.objects.create(**held)
    answer = browser.post(f"{PAGES}jobs/add/", {**NEW, "command": wanted})
    assert (answer.status_code, WorkerJob.objects.count()) == (409, 0)
    assert "broken" in answer.content.decode()


def test_a_job_runs_again_as_a_copy_with_changes(browser, submit):
    secret = {**SCRIPT, "env": {"DB_PASSWORD": "hunter22"}}
    first = submit(name="report", action=secret, tags=["gpu"], priority=3, max_retries=4, timeout_seconds=9)["id"]
    page = browser.get(f"{PAGES}jobs/{first}/again/").content.decode()
    assert "hunter22" not in page and "Run again: report" in page
    assert "Run again…" in browser.get(f"{PAGES}jobs/{first}/").content.decode()
    answer = browser.post(f"{PAGES}jobs/{first}/again/", {**fields_of(page), "priority": "5", "note": "as before"})
    assert answer.status_code == 302, answer.content.decode()
    copy = WorkerJob.objects.exclude(pk=first).get()
    assert (copy.name, copy.tags, copy.priority, copy.max_retries, copy.timeout_seconds) == ("report", ["gpu"], 5, 4, 9)
    assert copy.action["env"] == {"DB_PASSWORD": "hunter22"}
    [event] = ServerEvent.objects.filter(action="submit_job")
    assert event.changes == {"copy_of": {"old": None, "new": first}}


def test_a_copy_keeps_what_the_form_does_not_show_although_a_rule_limits_its_tag(browser, submit, operator):
    assert operator.caller.call("put", "/limits/tag:gpu", {"running": 5}).status_code == 201
    hidden = {"worker_slots": 4, "deadline_seconds": 60.0, "on_deadline": "cancel"}
    notify = [{"url": "https://example.org/hook", "on": ["FAILED"]}]
    first = submit(tags=["gpu"], limits={"licence": 2}, notify=notify, **hidden)["id"]
    page = browser.get(f"{PAGES}jobs/{first}/again/").content.decode()
    answer = browser.post(f"{PAGES}jobs/{first}/again/", fields_of(page))
    assert answer.status_code == 302, answer.content.decode()
    source, copy = WorkerJob.objects.order_by("pk")
    assert copy.limits == source.limits == {"licence": 2, "tag:gpu": 1}
    for name in (*hidden, "notify"):
        assert getattr(copy, name) == getattr(source, name) is not None


def test_a_step_and_an_unknown_job_cannot_run_again_by_themselves(browser, begin):
    step = begin({"key": "a", "action": SCRIPT}).step("a")["job"]
    for job in (step, "018f0000-0000-7000-8000-000000000000"):
        assert browser.get(f"{PAGES}jobs/{job}/again/").status_code == 404
    assert "Run again…" not in browser.get(f"{PAGES}jobs/{step}/").content.decode()


def test_a_waiting_job_is_edited(browser, submit):
    job = submit(payload={"a": 1}, tags=["gpu"])["id"]
    assert "Edit…" in browser.get(f"{PAGES}jobs/{job}/").content.decode()
    fields = fields_of(browser.get(f"{PAGES}jobs/{job}/edit/").content.decode())
    given = {**fields, "payload": '{"a": 2}', "tags": "cpu", "priority": "4", "note": "typo"}
    assert browser.post(f"{PAGES}jobs/{job}/edit/", given).status_code == 302
    row = WorkerJob.objects.get()
    assert (row.payload, row.tags, row.priority) == ({"a": 2}, ["cpu"], 4)
    [event] = ServerEvent.objects.filter(action="change_job")
    assert (event.reason, event.changes["priority"]) == ("typo", {"old": 0, "new": 4})


def test_an_edit_is_refused_if_the_job_was_changed_since_it_was_shown(browser, submit):
    job = submit()["id"]
    fields = fields_of(browser.get(f"{PAGES}jobs/{job}/edit/").content.decode())
    submit.client.call("PATCH", f"/jobs/{job}", {"priority": 9})
    answer = browser.post(f"{PAGES}jobs/{job}/edit/", {**fields, "priority": "4"})
    assert (answer.status_code, WorkerJob.objects.get().priority) == (409, 9)


def test_a_job_that_runs_cannot_be_edited(browser, submit, worker):
    job = submit()["id"]
    worker().hold()
    assert "Edit…" not in browser.get(f"{PAGES}jobs/{job}/").content.decode()
    answer = browser.get(f"{PAGES}jobs/{job}/edit/")
    assert answer.status_code == 409 and "Only a job that waits" in answer.content.decode()


def test_a_scheduled_job_runs_now(browser, submit):
    job = submit(available_at=(timezone.now() + timedelta(days=1)).isoformat())["id"]
    assert "Run now…" in browser.get(f"{PAGES}jobs/{job}/").content.decode()
    at = f"{PAGES}jobs/run_now/?pick={job}"
    assert "before the time for which it is scheduled" in browser.get(at).content.decode()
    assert browser.post(at, {"seen": f"{job} PENDING"}).status_code == 302
    assert WorkerJob.objects.get().available_at <= timezone.now()
    assert "Run now…" not in browser.get(f"{PAGES}jobs/{job}/").content.decode()
    assert "does not wait for a later time" in browser.get(at).content.decode()
    browser.post(at, {"seen": f"{job} PENDING"})
    assert actions() == ["change_job"]


def test_a_reader_may_neither_submit_nor_edit(reader, submit):
    job = submit()["id"]
    for page in ("jobs/add/", f"jobs/{job}/again/", f"jobs/{job}/edit/", f"jobs/run_now/?pick={job}"):
        assert reader.get(PAGES + page).status_code == 403, page
    shown = reader.get(f"{PAGES}jobs/{job}/").content.decode() + reader.get(f"{PAGES}jobs/").content.decode()
    assert not [words for words in ("New job…", "Run again…", "Edit…") if words in shown]
