"""Actions of the pages in a real browser: their dialogs, with and without JavaScript."""

import pytest
from playwright.sync_api import expect

from tests.support import browser

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with browser.site(tmp_path_factory.mktemp("dialogs")) as site:
        yield site


@pytest.fixture
def site(running):
    """Yield a site whose browser must not report an error."""
    running.complaints.clear()
    yield running
    assert running.complaints == []


@pytest.mark.parametrize("scripts", [True, False])
def test_a_job_is_submitted_and_run_again_from_the_pages(site, scripts):
    page = site.open(java_script_enabled=scripts)
    site.go(page, "jobs/")
    page.get_by_role("link", name="New job…").click()
    page.get_by_label("Command").fill("true")
    page.get_by_label("Tags").fill("nobody, here")
    page.get_by_role("button", name="Submit").click()
    page.locator(".messagelist", has_text="Submitted: job").wait_for()
    page.get_by_role("link", name="Run again…").click()
    expect(page.get_by_label("Command")).to_have_value("true")
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Submit").click()
    page.locator("dl.facts dd", has_text="7").first.wait_for()
    page.context.close()


def test_a_dialog_shows_the_effect_and_closes_without_acting(site):
    job = site.submit("true", tags=["nobody"], unmatched="wait")
    page = site.open()
    site.go(page, f"jobs/{job}/")
    page.get_by_text("More actions").click()
    page.get_by_role("link", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("A waiting job ends now.")
    assert browser.findings(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("link", name="Cancel…")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_text("More actions")).to_be_focused()
    assert site.job(job)["state"] == "PENDING" and page.url.endswith(f"jobs/{job}/")
    browser.act(page, "Cancel", "not needed")
    expect(page.locator(".messagelist", has_text="Cancelled: 1 job.")).to_be_focused()
    page.context.close()


def test_a_dialog_of_a_job_that_changed_since_then_leads_to_a_refusal(site):
    job = site.submit("true", tags=["nobody"], unmatched="wait")
    page = site.open()
    site.go(page, f"jobs/{job}/")
    page.get_by_text("More actions").click()
    page.get_by_role("link", name="Fail…").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("too late")
    site.running.call("POST", f"{site.url}/api/v1/jobs/{job}/cancel", site.client, {})
    page.get_by_role("dialog").get_by_role("button", name="Fail: 1 job").click()
    page.get_by_text("It was PENDING when you looked and is CANCELLED now").wait_for()
    site.complaints.clear()  # the browser reports the 409
    page.context.close()
