"""Local changes to a page in a real browser: shortcuts, sorted rows, local time, a pause."""

import re
from datetime import datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.support import browser
from tests.support.processes import eventually

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with browser.site(tmp_path_factory.mktemp("reader")) as site:
        yield site


@pytest.fixture
def site(running):
    """Yield a site whose browser must not report an error."""
    running.complaints.clear()
    yield running
    assert running.complaints == []


def test_keyboard_shortcuts_move_through_rows_and_pages_and_are_listed(site):
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
    expect(page.locator(".menu a[aria-current]")).to_contain_text("Jobs")
    page.context.close()


def test_rows_are_sorted_by_the_clicked_column_and_stay_sorted(site):
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


def test_times_are_shown_in_local_time_with_utc_in_the_title(site):
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


def test_the_state_machine_of_a_server_uses_local_time(site):
    page = site.open(timezone_id="Asia/Tokyo")
    site.go(page, "servers/")
    page.locator("table tbody th a").first.click()
    page.locator("summary", has_text="How states work").click()
    moment = page.locator(".machine svg:visible [data-at]").first
    at = datetime.fromisoformat(str(moment.get_attribute("data-at")))
    expect(moment).to_have_text(re.compile(f"{at + timedelta(hours=9):%H:%M:%S}$"))
    expect(page.locator(".machine figcaption .zone")).to_have_text("(GMT+9)")
    regular = page.locator("dt", has_text="median").locator("+ dd").locator("time")
    at = datetime.fromisoformat(str(regular.get_attribute("datetime")))
    expect(regular).to_have_text(re.compile(f"^{at + timedelta(hours=9):%H:%M:%S}"))
    page.context.close()


def test_log_lines_use_local_time_also_those_that_are_added_later(site):
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


def test_the_count_in_the_sidebar_is_updated_by_polls(site):
    site.submit("true", tags=["counted"], unmatched="wait")
    page = site.open()
    site.go(page, "triggers/")
    browser.poll_often(page)
    told = page.locator("#menu a", has_text="Jobs").locator(".count")
    waiting = int(re.match(r"(\d+) waiting", str(told.get_attribute("title")))[1])
    site.submit("true", tags=["counted"], unmatched="wait")
    expect(told).to_have_attribute("title", re.compile(f"^{waiting + 1} waiting"))
    expect(page.locator("#menu")).to_have_count(1)
    expect(page.locator("#menu [aria-current=page]")).to_have_text("Triggers")
    page.context.close()


def test_a_paused_page_changes_only_on_request(site):
    page = site.open()
    site.go(page, "jobs/?tag=paused")
    browser.poll_often(page)
    page.locator("#pause").click()
    expect(page.locator("#pause")).to_have_text("Resume")
    expect(page.locator(".live-words")).to_have_text(re.compile(r"Paused \d+ s"))
    first = site.submit("true", tags=["paused"], unmatched="wait")
    expect(page.locator(".live-words")).to_have_text(re.compile(r"Paused ([3-9]|\d{2,}) s"))
    expect(page.locator(f"#job-{first}")).to_have_count(0)
    expect(page.locator("#stale")).to_be_hidden()
    page.keyboard.press("r")
    expect(page.locator(f"#job-{first}")).to_be_visible()
    second = site.submit("true", tags=["paused"], unmatched="wait")
    page.locator("#pause").click()
    expect(page.locator(f"#job-{second}")).to_be_visible()
    expect(page.locator("#pause")).to_have_text("Pause")
    expect(page.locator(".live-words")).to_have_text(re.compile(r"Live \d s"))
    page.context.close()


def test_the_search_opens_by_a_key_and_leads_to_what_was_chosen(site):
    job = site.submit("true", name="needle in the hay", tags=["searched"], unmatched="wait")
    page = site.open()
    site.go(page)
    dialog = page.get_by_role("dialog", name="Search and jump")
    for key in ("Control+k", "Meta+k"):
        page.keyboard.press(key)
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("servers")
    expect(dialog.get_by_role("option", selected=True)).to_contain_text("Servers")
    page.keyboard.press("Control+a")
    page.keyboard.type("needle")
    expect(dialog.get_by_role("option", selected=True)).to_contain_text("needle in the hay")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}/")
    page.context.close()


def test_the_tabs_of_a_job_show_one_panel_and_are_all_shown_without_javascript(site):
    job = site.submit("true", name="tabbed", tags=["tabbed"], payload={"number": 42}, unmatched="wait")
    page = site.open()
    browser.poll_often(page)
    site.go(page, f"jobs/{job}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("tabbed")
    assert [tab.split()[0] for tab in page.get_by_role("tab").all_inner_texts()] == [
        "Logs", "Output", "Input", "Errors", "Events", "JSON",
    ]  # fmt: skip
    page.get_by_role("tab", name="Input").click()
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        pass
    expect(page.get_by_role("tabpanel")).to_have_count(1)
    expect(page.get_by_role("tabpanel")).to_contain_text('"number": 42')
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Output")).to_be_focused()
    page.get_by_role("button", name="Copy id").wait_for()
    page.get_by_text("More actions").click()
    expect(page.locator(".actions a", has_text="Cancel")).to_be_visible()
    page.context.close()
    page = site.open(java_script_enabled=False)
    site.go(page, f"jobs/{job}/")
    expect(page.get_by_role("tabpanel")).to_have_count(6)
    page.context.close()


def test_bulk_buttons_appear_when_a_row_is_ticked(site):
    job = site.submit("true", tags=["ticked"], unmatched="wait")
    page = site.open()
    site.go(page, "jobs/?tag=ticked")
    button = page.get_by_role("button", name="Cancel…")
    expect(button).to_be_hidden()
    page.locator(f"#pick-{job}").check()
    expect(button).to_be_visible()
    page.locator(f"#pick-{job}").uncheck()
    expect(button).to_be_hidden()
    page.context.close()


def test_on_a_phone_more_opens_all_pages(site):
    page = site.open(viewport={"width": 360, "height": 800})
    site.go(page, "jobs/")
    expect(page.locator(".bottom-bar a[aria-current]")).to_contain_text("Jobs")
    page.locator(".bottom-bar").get_by_text("More").click()
    page.locator("#menu").get_by_text("Maintenance & brake").click()
    page.wait_for_url("**/maintenance/")
    page.context.close()


def test_a_chart_shows_its_values_at_the_mouse_and_leads_to_the_jobs(site):
    page = site.open()
    site.go(page, "trends/")

    def is_counted():
        page.wait_for_timeout(1000)
        page.reload()
        return page.locator(".plot").count()

    eventually(is_counted, within=90, why="the executor has counted")
    chart = page.get_by_role("figure", name="Jobs ended per minute").locator(".plot")
    chart.hover()
    expect(page.get_by_role("tooltip")).to_have_text(re.compile(r"\d\d:\d\d · completed .*, failed "))
    chart.click()
    page.wait_for_url(re.compile(r"/jobs/\?since=[^&]+&until="))
    page.context.close()


def test_a_drag_on_a_chart_of_a_server_chooses_the_period_of_its_charts(site):
    site.running.agent("charted", site.url, "--tags", "charted")
    job = site.submit("true", tags=["charted"], unmatched="wait")
    eventually(lambda: site.job(job)["state"] == "COMPLETED")
    page = site.open()
    server = site.server_page(page, "charted")
    site.go(page, server)
    plot = page.locator(".plot[data-range]").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    middle = box["y"] + box["height"] / 2
    first, second = box["x"] + box["width"] * 0.25, box["x"] + box["width"] * 0.75

    def drag():
        page.mouse.move(first, middle)
        page.mouse.down()
        page.mouse.move(second, middle, steps=4)
        page.locator("rect.at-range").wait_for(state="attached")

    drag()
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator("rect.at-range")).to_have_count(0)
    assert "since=" not in page.url
    drag()
    page.mouse.up()
    page.wait_for_url(f"**/{server}?since=*&until=*")
    expect(page.locator("#charts-range")).to_have_attribute("open", "")
    page.locator("#charts .windows a", has_text="24 hours").click()
    page.wait_for_url("**?window=24h#charts")
    page.locator(".plot[data-jobs]").first.click()
    page.wait_for_url("**/jobs/?server=*&since=*&until=*")
    page.context.close()
