"""The form *Kill* holds work and cancels all jobs that the hold covers, after a preview."""

import re

import pytest

from jobs.models import Batch, Execution, Hold, WorkerJob
from jobs.services import batches
from tests.integration.jobs.test_holds import COVERING, TAGS
from tests.support.executions import step
from tests.support.operators import actions

KILL = "/admin/instance/holds/kill/"


@pytest.fixture
def browser(staff):
    return staff("change_maintenance", "cancel_workerjob", "cancel_execution", checks_csrf=False)


@pytest.fixture
def preview(browser):
    """Return a function that sends the form, and returns the page and what the form of the confirmation has."""

    def preview(of, **fields):
        [(kind, value)] = of.items()
        given = {
            "kind": kind,
            "value": value,
            "mode": "refuse",
            "duration": "",
            "note": "bad data",
            "namespace": "",
            "key": "k",
        }
        answer = browser.post(KILL, {**given, **fields})
        assert answer.status_code == 200
        page = answer.content.decode()
        hidden = re.findall(r'<input type="hidden" name="(\w+)"(?: value="([^"]*)")?', page)
        return page, dict(hidden)

    return preview


def confirm(browser, given):
    return browser.post(KILL, {name: value for name, value in given.items() if name != "csrfmiddlewaretoken"})


def states():
    return sorted(WorkerJob.objects.values_list("state", flat=True))


@pytest.mark.parametrize("case", COVERING)
def test_what_a_hold_covers_is_counted_held_and_cancelled(case, browser, preview, submit, worker):
    of, fields = COVERING[case]
    worker(tags=[*TAGS, "other"])
    submit(**fields)
    submit(action={"type": "handler", "name": "other"}, tags=["other"], unmatched="wait")
    page, given = preview(of)
    jobs = 2 if case == "namespace" else 1
    assert f"{jobs} waiting job" in page and not Hold.objects.exists() and "CANCELLED" not in states()
    answer = confirm(browser, given)
    hold, batch = Hold.objects.get(), Batch.objects.get()
    assert answer.url.endswith(f"/batches/{batch.pk}/")
    assert (hold.of, hold.mode, hold.note, batch.note) == (of, "refuse", "bad data", "bad data")
    assert states().count("CANCELLED") == jobs == batch.done
    assert actions(subject_type="hold") == ["create_hold"]
    assert actions(subject_type="job").count("cancel_job") == jobs


def test_a_running_job_is_asked_to_stop_and_nothing_new_starts(browser, preview, submit, worker):
    one = worker()
    submit()
    attempt = one.hold()
    submit()
    page, given = preview({"tag": "script"})
    assert "1 waiting job<" in page and "1 running job<" in page
    confirm(browser, given)
    assert states() == ["CANCELLED", "RUNNING"] and one.claim() == []
    assert WorkerJob.objects.get(pk=attempt["job"]["id"]).cancel_requested_at is not None


def test_jobs_that_came_after_the_preview_are_on_hold_and_not_cancelled(browser, preview, submit, worker):
    one = worker()
    submit()
    _, given = preview({"tag": "script"}, mode="pause")
    submit()
    confirm(browser, given)
    assert states() == ["CANCELLED", "PENDING"] and one.claim() == []


def test_more_jobs_than_the_preview_showed_change_nothing(browser, preview, submit, worker):
    worker()
    submit()
    _, given = preview({"tag": "script"})
    answer = confirm(browser, {**given, "seen": "0"})
    assert answer.status_code == 409 and "The preview showed 0 jobs, but now 1 match." in answer.content.decode()
    assert not Hold.objects.exists() and states() == ["PENDING"]


def test_without_a_job_there_is_only_a_hold(browser, preview):
    _, given = preview({"tag": "gpu"})
    assert confirm(browser, given).url.endswith("/holds/")
    assert Hold.objects.count() == 1 and not Batch.objects.exists()


def test_a_form_that_is_sent_twice_kills_once(browser, preview, submit, worker):
    worker()
    submit()
    _, given = preview({"tag": "script"})
    assert confirm(browser, given).url == confirm(browser, given).url
    assert Hold.objects.count() == Batch.objects.count() == 1


def test_an_execution_is_held_and_cancelled_as_a_whole(browser, preview, submit):
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a"), step("b", "a")]}).json()["id"]
    page, given = preview({"execution": run})
    assert "The execution is cancelled" in page
    confirm(browser, given)
    batches.run_batches()
    assert Execution.objects.get(pk=run).state == "CANCELLED" and Hold.objects.count() == 1


def test_an_invalid_form_is_shown_again(browser):
    page = browser.post(KILL, {"kind": "tag", "value": "", "mode": "refuse", "note": ""}).content.decode()
    assert "This field is required" in page and "Preview" in page
    assert "Nothing happens before you confirm" in browser.get(f"{KILL}?kind=tag&value=gpu").content.decode()


@pytest.mark.parametrize("permission", ["change_maintenance", "cancel_workerjob"])
def test_the_form_needs_the_permissions_to_hold_and_to_cancel(permission, staff):
    client = staff(permission)
    assert client.get(KILL).status_code == 403
    assert "Kill…" not in client.get("/admin/instance/holds/").content.decode()


def test_the_page_of_holds_offers_to_kill(browser):
    assert "Kill…" in browser.get("/admin/instance/holds/").content.decode()
