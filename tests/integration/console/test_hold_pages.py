"""Pages of holds, and banners on the pages of what is held."""

import pytest

from jobs.models import Execution, Hold
from tests.support.executions import step
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
PAGES = "/admin/instance/"
SCRIPT = {"type": "script", "command": "true"}


@pytest.fixture
def browser(staff):
    return staff("change_maintenance", checks_csrf=False)


def test_work_is_held_and_released_by_forms(browser):
    assert "Nothing is on hold" in browser.get(f"{PAGES}holds/").content.decode()
    assert "Hold work" in browser.get(f"{PAGES}holds/add/?kind=tag&value=gpu").content.decode()
    given = {"kind": "tag", "value": "gpu", "mode": "refuse", "duration": "1h", "note": "new driver", "namespace": ""}
    assert browser.post(f"{PAGES}holds/add/", given).status_code == 302
    held = Hold.objects.get()
    assert (held.of, held.mode, held.note, held.namespace) == ({"tag": "gpu"}, "refuse", "new driver", None)
    page = browser.get(f"{PAGES}holds/").content.decode()
    assert "tag gpu" in page and "new driver" in page and f"holds/{held.pk}/release/" in page
    assert browser.get(f"{PAGES}holds/{held.pk}/release/").status_code == 200
    assert browser.post(f"{PAGES}holds/{held.pk}/release/", {"note": ""}).status_code == 302
    assert browser.get(f"{PAGES}holds/{held.pk}/release/").status_code == 404
    assert actions(subject_type="hold") == ["create_hold", "release_hold"]


@pytest.mark.parametrize("wrong", [{"value": ""}, {"kind": "execution", "value": "x"}, {"duration": "0s"}])
def test_an_invalid_form_holds_nothing(browser, wrong):
    given = {"kind": "tag", "value": "gpu", "mode": "pause", "duration": "", "note": "", "namespace": "", **wrong}
    assert browser.post(f"{PAGES}holds/add/", given).status_code == 200
    assert not Hold.objects.exists()


def test_a_reader_sees_holds_and_may_not_change_them(reader):
    hold = Hold.objects.create(kind="tag", value="gpu", by="operator:o", note="why")
    page = reader.get(f"{PAGES}holds/").content.decode()
    assert "why" in page and "Release…" not in page and "Hold work…" not in page
    assert reader.get(f"{PAGES}holds/add/").status_code == 403
    assert reader.post(f"{PAGES}holds/{hold.pk}/release/").status_code == 403


def test_the_pages_of_what_is_held_have_a_banner(reader, submit, api):
    job = submit(unmatched="wait")["id"]
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a")]}).json()["id"]
    trigger = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": {"name": "x", "steps": [step("a")]}}
    trigger = api("operator").post("/triggers", trigger).json()["id"]
    pages = {("action", "script"): f"jobs/{job}/", ("execution", run): f"executions/{run}/",
             ("trigger", trigger): f"triggers/{trigger}/"}  # fmt: skip
    for page in pages.values():
        assert "On hold:" not in reader.get(PAGES + page).content.decode()
    for (kind, value), page in pages.items():
        Hold.objects.create(kind=kind, value=value, by="operator:o", note="the reason")
        shown = reader.get(PAGES + page).content.decode()
        assert "On hold:" in shown and "the reason" in shown and "Waiting for a worker" not in shown, page


def test_the_sidebar_counts_holds_and_the_instance_lists_them(reader, api):
    Hold.objects.create(kind="tag", value="gpu", by="operator:o", note="why")
    assert "1 in force" in reader.get(f"{PAGES}holds/").content.decode()
    [held] = api("viewer").get("/instance").json()["holds"]
    assert (held["of"], held["note"], held["parked"]) == ({"tag": "gpu"}, "why", 0)


def test_the_page_of_a_child_shows_the_hold_of_its_parent(reader, submit, worker):
    inner = {"type": "execution", "name": "inner", "steps": [step("s")]}
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a", action=inner)]}).json()["id"]
    child = Execution.objects.exclude(pk=run).get()
    Hold.objects.create(kind="execution", value=run, by="operator:o", note="why")
    assert "On hold:</strong>\nthis execution" in reader.get(f"{PAGES}executions/{run}/").content.decode()
    page = reader.get(f"{PAGES}executions/{child.pk}/").content.decode()
    assert "On hold:" in page and f"executions/{run}/" in page


def test_a_hold_of_a_namespace_is_shown_on_its_executions(reader, submit):
    run = submit.client.post("/executions", {"name": "x", "steps": [step("a")]}).json()["id"]
    Hold.objects.create(kind="namespace", value="red", by="operator:o")
    assert "On hold:" not in reader.get(f"{PAGES}executions/{run}/").content.decode()
    Hold.objects.create(kind="namespace", value="default", by="operator:o")
    assert "namespace default" in reader.get(f"{PAGES}executions/{run}/").content.decode()
