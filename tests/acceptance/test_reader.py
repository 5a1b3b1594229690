"""What a reader makes of a page in his browser: keys, the order of rows, the time of his clock, a pause."""

import re
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.support import browser

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with browser.site(tmp_path_factory.mktemp("reader")) as site:
        yield site


@pytest.fixture
def site(running):
    """A browser that did not complain."""
    running.complaints.clear()
    yield running
    assert running.complaints == []


def test_keys_lead_through_rows_and_pages_and_are_listed(site):
    jobs = [site.submit("true", name=f"of keys {number}", tags=["nobody"], unmatched="wait") for number in range(2)]
    page = site.open()
    site.go(page, "jobs/?tag=nobody")
    page.locator(f"#job-{jobs[0]}").wait_for()
    page.keyboard.press("j")
    expect(page.locator(f"#job-{jobs[1]} th a")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator(f"#job-{jobs[0]} th a")).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator(f"#pick-{jobs[0]}")).to_be_checked()
    page.keyboard.press("/")
    expect(page.locator("#by-q")).to_be_focused()
    page.keyboard.type("gs?")
    expect(page.locator("#by-q")).to_have_value("gs?")
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/servers/")
    site.go(page, f"jobs/{jobs[0]}/")
    expect(page.locator(".tabs a[aria-current]")).to_contain_text("Jobs")
    page.context.close()


def test_rows_are_sorted_by_the_column_that_is_clicked_and_stay_so(site):
    jobs = [site.submit("true", name=f"{name} job", tags=["sorted"], unmatched="wait") for name in ("b", "c", "a")]
    page = site.open()
    site.go(page, "jobs/?tag=sorted")
    browser.poll_often(page)
    names = page.locator("table.jobs tbody th > a")
    expect(names).to_have_text(["a job", "c job", "b job"])
    page.locator("button.sort", has_text="Job").click()
    expect(names).to_have_text(["a job", "b job", "c job"])
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Job")
    page.locator("button.sort", has_text="Job").click()
    expect(names).to_have_text(["c job", "b job", "a job"])
    jobs.append(site.submit("true", name="bb job", tags=["sorted"], unmatched="wait"))
    expect(names).to_have_text(["c job", "bb job", "b job", "a job"])
    page.context.close()


def test_moments_are_told_by_the_readers_clock_with_utc_in_the_title(site):
    job = site.submit("true", tags=["nobody-there"], unmatched="wait")
    page = site.open(timezone_id="Asia/Tokyo")
    site.go(page, f"jobs/{job}/")
    expect(page.locator(".zone").first).to_have_text("(GMT+9)")
    moment = page.locator("td time:not([data-age]):not([data-left])").first
    at = datetime.fromisoformat(str(moment.get_attribute("datetime")))
    assert f"{at + timedelta(hours=9):%H:%M:%S}" in moment.inner_text()
    assert f"{at:%Y-%m-%d %H:%M:%S}" in str(moment.get_attribute("title"))
    assert str(moment.get_attribute("title")).endswith(" UTC")
    page.context.close()


def test_the_state_machine_of_a_server_is_told_by_the_readers_clock(site):
    page = site.open(timezone_id="Asia/Tokyo")
    site.go(page, "servers/")
    page.locator("table tbody th a").first.click()
    moment = page.locator(".machine svg:visible [data-at]").first
    at = datetime.fromisoformat(str(moment.get_attribute("data-at")))
    expect(moment).to_have_text(re.compile(f"{at + timedelta(hours=9):%H:%M:%S}$"))
    expect(page.locator(".machine figcaption .zone")).to_have_text("(GMT+9)")
    regular = page.locator("dt", has_text="median").locator("+ dd").locator("time")
    at = datetime.fromisoformat(str(regular.get_attribute("datetime")))
    expect(regular).to_have_text(re.compile(f"^{at + timedelta(hours=9):%H:%M:%S}"))
    page.context.close()


def test_lines_of_a_log_are_told_by_the_readers_clock_also_those_that_come_later(site):
    site.running.agent("teller", site.url, "--tags", "told")
    go = site.running.folder / "go-on-telling"
    job = site.submit(
        f"echo first; while [ ! -e {go} ]; do sleep 0.05; done; echo later", tags=["told"], unmatched="wait"
    )
    page = site.open(timezone_id="Asia/Tokyo")
    browser.poll_often(page)
    site.go(page, f"jobs/{job}/log/")
    expect(page.locator(".zone").first).to_have_text("(GMT+9)")
    for text in ("first", "later"):
        line = page.locator("#lines li", has_text=text)
        line.wait_for()
        go.touch()
        at = datetime.fromisoformat(str(line.locator("[data-at]").get_attribute("data-at")))
        expect(line.locator(".at")).to_have_text(re.compile(rf"{at + timedelta(hours=9):%H:%M:%S}\.\d{{3}}$"))
        assert str(line.get_attribute("title")) == f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    page.context.close()


def test_the_number_on_a_tab_changes_with_what_it_counts(site):
    site.submit("true", tags=["counted"], unmatched="wait")
    page = site.open()
    site.go(page, "triggers/")
    browser.poll_often(page)
    told = page.locator("#tabs a", has_text="Jobs").locator(".count")
    waiting = int(re.match(r"(\d+) waiting", str(told.get_attribute("title")))[1])
    site.submit("true", tags=["counted"], unmatched="wait")
    expect(told).to_have_attribute("title", re.compile(f"^{waiting + 1} waiting"))
    expect(page.locator("#tabs")).to_have_count(1)
    expect(page.locator("#tabs [aria-current=page]")).to_have_text("Triggers")
    page.context.close()


def test_a_page_that_is_paused_stays_as_it_is_until_it_is_asked(site):
    page = site.open()
    site.go(page, "jobs/?tag=paused")
    browser.poll_often(page)
    page.locator("#pause").click()
    expect(page.locator("#pause")).to_have_text(re.compile(r"Resume, \d+ s old"))
    first = site.submit("true", tags=["paused"], unmatched="wait")
    expect(page.locator("#pause")).to_have_text(re.compile(r"Resume, [3-9] s old"))
    expect(page.locator(f"#job-{first}")).to_have_count(0)
    expect(page.locator("#stale")).to_be_hidden()
    page.keyboard.press("r")
    expect(page.locator(f"#job-{first}")).to_be_visible()
    second = site.submit("true", tags=["paused"], unmatched="wait")
    page.locator("#pause").click()
    expect(page.locator(f"#job-{second}")).to_be_visible()
    expect(page.locator("#pause")).to_have_text("Pause")
    page.context.close()
