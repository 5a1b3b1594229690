"""Instance pages in a real browser, with real processes: changes without a reload, and operator actions."""

import re

import pytest
from playwright.sync_api import expect

from tests.support import browser
from tests.support.processes import eventually, free_port

pytestmark = pytest.mark.acceptance

# A graph may be wider than a phone; a table or a state machine may not.
HIDDEN_AT_THE_SIDE = """[...document.querySelectorAll('.scroll, .machine, .lanes')]
    .filter(it => !it.closest('.graph') && it.scrollWidth > it.clientWidth + 1).map(it => it.outerHTML.slice(0, 200))"""
ROW_HEIGHTS = """[...document.querySelectorAll('table.rows:not(.incidents) tbody tr')]
    .map(it => it.getBoundingClientRect().height).filter(Boolean)"""
OUT_OF_THEIR_CELLS = """[...document.querySelectorAll('td.beat')]
    .filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.outerHTML.slice(0, 200))"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"{{ 1234567*7 }}"
EITHER, OTHER = (
    pytest.mark.parametrize("scheme", [one, pytest.param(other, marks=pytest.mark.exhaustive)])
    for one, other in (("light", "dark"), ("dark", "light"))
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with browser.site(tmp_path_factory.mktemp("browser")) as site:
        yield site


@pytest.fixture
def site(running):
    """Yield a site whose browser must not report an error: no inline code, no other host, no exception."""
    running.complaints.clear()
    yield running
    assert running.complaints == []


@EITHER
def test_a_killed_worker_is_shown_without_a_reload(site, scheme):
    name = f"victim-{scheme}"
    site.running.agent(name, site.url, "--tags", name)
    phone = {"color_scheme": scheme, "viewport": {"width": 360, "height": 800}}
    overview = site.open(**phone)
    browser.poll_often(overview)
    overview.locator("tr", has_text=name).get_by_text("RUNNING").wait_for()
    job = site.submit("sleep 600", tags=[name], unmatched="wait")
    server, lanes = overview.context.new_page(), overview.context.new_page()
    site.go(server, site.server_page(server, name))
    site.go(lanes, f"jobs/{job}/")
    lanes.locator(".badge", has_text="RUNNING").first.wait_for()
    loads: list[str] = []
    for page in (overview, server, lanes):
        page.on("load", lambda page: loads.append(page.url))

    site.running.kill(name)
    countdown = re.compile(r"DISCONNECTED in \d+ s, unless a heartbeat arrives before")
    server.locator(".next", has_text=countdown).wait_for()
    server.locator(".state .s-SILENT").wait_for()
    overview.locator(".verdict li", has_text=name).wait_for()
    server.locator(".badge", has_text="DISCONNECTED").first.wait_for()
    server.locator(".badge", has_text="NOT RUNNING").first.wait_for()
    overview.locator(".activity .badge", has_text="NOT RUNNING").first.wait_for()
    lanes.locator(".lanes .arrow.s-RESUBMITTED, .lanes .end.s-RESUBMITTED").first.wait_for()
    lanes.locator(".lanes .mark.is-lost").first.wait_for()
    lanes.locator(".rows .s-RESUBMITTED").first.wait_for(state="attached")
    assert loads == [], "a page was reloaded"
    for page in (overview, server, lanes):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "it is read on a phone as well"
    overview.context.close()


@OTHER
def test_an_execution_continues_after_its_worker_is_killed_and_can_be_cancelled(site, scheme):
    name, heir = f"doomed-{scheme}", f"heir-{scheme}"
    site.running.agent(name, site.url, "--tags", scheme)
    run = site.begin(
        browser.step("extract", "test $JOB_ATTEMPT -gt 1 || sleep 600", tags=[scheme], unmatched="wait"),
        browser.step("load", "sleep 600", "extract", tags=[scheme], unmatched="wait"),
        browser.step("tidy", "true", "load", tags=[scheme], unmatched="wait"),
    )
    page = site.open(color_scheme=scheme, viewport={"width": 360, "height": 800})
    browser.poll_often(page)
    site.go(page, f"executions/{run}/")

    def box(key, state):
        return page.locator(f".graph .box.s-{state}", has_text=key)

    box("extract", "RUNNING").wait_for()
    expect(box("load", "BLOCKED")).to_be_attached()
    loads: list[str] = []
    page.on("load", lambda page: loads.append(page.url))
    site.running.agent(heir, site.url, "--tags", scheme)
    site.running.kill(name)
    page.locator(".lanes .end.s-RESUBMITTED").first.wait_for()
    page.locator("table", has_text="Details").get_by_text("JOB_RESUBMITTED").wait_for()
    box("extract", "COMPLETED").wait_for()
    box("load", "RUNNING").wait_for()
    assert loads == [], "the page was reloaded"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "it is read on a phone as well"
    browser.act(page, "Cancel", "nobody needs it")
    page.locator(".state .badge", has_text="CANCELLED").wait_for()
    assert {step["key"]: step["state"] for step in site.execution(run)["steps"]} == {
        "extract": "COMPLETED", "load": "CANCELLED", "tidy": "CANCELLED",
    }  # fmt: skip
    page.context.close()


def test_a_server_is_drained_from_its_page_and_the_drain_stopped(site):
    site.running.agent("to-drain", site.url, "--tags", "drained")
    page = site.open()
    browser.poll_often(page)
    page.locator("tr", has_text="to-drain").get_by_text("RUNNING").wait_for()
    go = site.running.folder / "go-on"
    job = site.submit(f"while [ ! -e {go} ]; do sleep 0.05; done", tags=["drained"], unmatched="wait")
    eventually(lambda: site.job(job)["state"] == "RUNNING", why="it runs")
    site.go(page, site.server_page(page, "to-drain"))
    page.locator(".actions a", has_text="Drain").click()
    page.get_by_text("continues; its server returns it at the deadline").wait_for()
    page.fill("textarea[name=note]", "a new disk")
    page.locator("[data-for=deadline]").get_by_role("button", name="5m", exact=True).click()
    assert page.input_value("input[name=deadline]") == "5m"
    page.click("button.is-main")
    page.locator(".messagelist", has_text="Drain begun: 1 server.").wait_for()
    page.locator(".badge", has_text="DRAINING").first.wait_for()
    page.get_by_text("0 of 1 jobs done, 1 remaining").wait_for()
    go.touch()
    page.get_by_text("1 of 1 jobs done, 0 remaining").wait_for()
    assert site.job(job)["state"] == "COMPLETED"
    browser.act(page, "Stop draining", "the disk is in")
    page.locator(".state > .badge", has_text="DRAINING").wait_for(state="detached")
    page.locator("main", has_text="the disk is in").wait_for()
    page.context.close()


def test_a_running_job_is_cancelled_from_its_page(site):
    site.running.agent("canceller", site.url, "--tags", "cancelled")
    job = site.submit("echo it begins; sleep 600", tags=["cancelled"], unmatched="wait")
    page = site.open()
    browser.poll_often(page)
    site.go(page, f"jobs/{job}/")
    page.locator(".log", has_text="it begins").wait_for()
    browser.act(page, "Cancel", "nobody needs it")
    page.locator(".state .badge", has_text="CANCELLED").wait_for()
    assert site.job(job)["state"] == "CANCELLED"
    page.context.close()


def test_a_followed_log_gets_only_new_lines_and_ends_with_its_job(site):
    site.running.agent("writer", site.url, "--tags", "written")
    go = site.running.folder / "go-on-writing"
    command = f"echo first; while [ ! -e {go} ]; do sleep 0.05; done; echo second"
    job = site.submit(command, tags=["written"], unmatched="wait")
    page = site.open()
    browser.poll_often(page)
    site.go(page, f"jobs/{job}/")
    page.locator(".log", has_text="first").wait_for()
    page.get_by_text("Follow, search, download").click()
    first = page.locator("#lines li", has_text="first")
    first.evaluate("line => { line.dataset.seen = 'yes' }")
    go.touch()
    page.locator("#lines li", has_text="second").wait_for()
    page.get_by_text("It has ended: no more lines will come.").wait_for()
    assert page.locator("#lines li").all_inner_texts()[0] == first.inner_text()
    assert first.get_attribute("data-seen") == "yes", "what was there was not written anew"
    assert page.locator("#follow[hx-get]").count() == 0
    page.fill(".filter [name=q]", "SECOND")
    page.get_by_role("button", name="Apply").click()
    page.locator("#lines mark", has_text="second").wait_for()
    assert page.locator("#lines li").count() == 1
    with page.expect_download() as download:
        page.get_by_text("Download these lines").click()
    assert download.value.path().read_text().endswith("#1 out second\n")
    page.context.close()


def test_a_schedule_is_changed_by_fields_that_show_its_next_slots(site):
    site.schedule("by-fields")
    page = site.open()
    site.go(page, "triggers/")
    page.get_by_role("link", name="by-fields").click()
    page.locator(".actions a", has_text="Edit").click()
    page.check("[name=schedule][value=cron]")
    page.fill("[name=cron]", "nonsense")
    page.locator("[name=cron]").blur()
    page.locator("#slots", has_text="Wrong number of fields").wait_for()
    page.fill("[name=cron]", "15 4 * * *")
    page.fill("[name=timezone]", "Asia/Kolkata")
    page.locator("[name=timezone]").blur()
    page.locator("#slots", has_text="04:15:00 IST").wait_for()
    page.click("button.is-main")
    page.locator(".state", has_text="15 4 * * *").wait_for()
    browser.act(page, "Pause", "not this week")
    page.locator(".state .badge", has_text="PAUSED").wait_for()
    page.context.close()


def test_the_executor_cancels_all_matching_jobs_after_the_browser_was_closed(site):
    command = {"action": {"type": "script", "command": "true"}, "tags": ["flood"], "unmatched": "wait"}
    site.running.call("POST", f"{site.url}/api/v1/jobs", site.client, [command] * 250)
    page = site.open()
    site.go(page, "jobs/?tag=flood")
    page.locator(".bulk a", has_text="Cancel").click()
    assert "It applies to 250." in page.inner_text("main")
    page.fill("textarea[name=note]", "a flood")
    page.click("button.is-main")
    page.locator(".shares").wait_for()
    address = page.url
    page.context.close()
    page = site.open(viewport={"width": 360, "height": 800})
    site.go(page, "batches/")
    page.locator("tbody a", has_text="Cancel: 250 jobs").click()
    assert page.url == address
    page.locator(".state", has_text="250 of 250 done.").wait_for()
    assert page.locator(".items tbody tr .s-DONE").count() == 100
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, "it is read on a phone as well"
    site.go(page, "jobs/?tag=flood")
    assert page.get_by_role("link", name="Cancelled 250").count() == 1
    page.context.close()


def test_on_a_phone_the_filter_is_closed_and_its_summary_shows_the_chosen_values(site):
    page = site.open(viewport={"width": 360, "height": 800})
    site.go(page, "jobs/?tag=narrow")
    tag = page.locator(".filter [name=tag]")
    expect(tag).to_be_hidden()
    page.get_by_text("Filter: tag narrow").click()
    expect(tag).to_have_value("narrow")
    tag.fill("narrower")
    page.locator(".filter").get_by_role("button", name="Apply").click()
    page.get_by_text("Filter: tag narrower").wait_for()
    expect(tag).to_be_hidden()
    site.go(page, "jobs/?within=never")
    expect(page.locator(".filter .errorlist")).to_be_visible()
    page.set_viewport_size({"width": 1024, "height": 800})
    site.go(page, "jobs/?tag=narrow")
    expect(tag).to_be_visible()
    expect(page.get_by_text("Filter: tag narrow")).to_be_hidden()
    page.context.close()


def test_the_page_of_a_waiting_job_shows_why_it_waits(site):
    site.running.agent("classical", site.url, "--tags", "classical")
    page = site.open()
    browser.poll_often(page)
    page.locator("tr", has_text="classical").get_by_text("RUNNING").wait_for()
    job = site.submit("true", tags=["quantum"], unmatched="wait")
    site.go(page, f"jobs/{job}/")
    assert "No alive server may run it now" in page.inner_text(".placement")
    assert "it lacks quantum" in page.inner_text(".placement")
    page.context.close()


def test_every_page_requires_a_login(site):
    page = site.open(user=None)
    for path in (
        "", "servers/", "jobs/", "executions/", "triggers/", "activity/", "quarantine/", "recovery/",
        "servers/cordon/?all=1", "executions/cancel/?all=1",
    ):  # fmt: skip
        site.go(page, path)
        assert "/admin/login/" in page.url, path
    page.context.close()


def test_a_viewer_sees_no_buttons_and_cannot_perform_actions(site):
    job = site.submit("true", tags=["quantum"], unmatched="wait")
    page = site.open(user="vic")
    server = site.server_page(page, "web@")
    for path in ("", "servers/", server, "jobs/", f"jobs/{job}/", "quarantine/", "recovery/?running=0"):
        site.go(page, path)
        assert page.locator(".bulk, .actions, .tick input").count() == 0, path
    csrf = page.locator("[name=csrfmiddlewaretoken]").first.get_attribute("value")
    form = {"csrfmiddlewaretoken": csrf, "note": "x", "seen": f"{job} PENDING"}
    headers = {"Referer": page.url}
    for path in (f"jobs/cancel/?pick={job}", "servers/disconnect/?all=1", "recovery/fail-stale-running/?older_than=0"):
        answer = page.request.post(f"{site.url}/admin/instance/{path}", form=form, headers=headers)
        assert answer.status == 403, path
    assert site.job(job)["state"] == "PENDING"
    page.context.close()


def test_hostile_input_is_shown_as_text(site):
    registration = {"type": "INDEXER", "name": HOSTILE, "version": HOSTILE, "cluster": HOSTILE, "tags": [HOSTILE]}
    registration["instance_id"] = "0b9d0c1e-0000-4000-8000-000000000001"
    made = site.running.call("POST", f"{site.url}/api/v1/servers", site.worker, registration)
    beat = {"state": "RUNNING", "metrics": {HOSTILE: HOSTILE}}
    site.running.call("POST", f"{site.url}/api/v1/servers/{made['id']}/heartbeat", made["token"], beat)
    job = site.submit(f"echo {HOSTILE!r}", tags=[HOSTILE], payload={HOSTILE: HOSTILE}, unmatched="wait")
    site.running.call("POST", f"{site.url}/api/v1/servers/{made['id']}/cordon", site.operator, {"note": HOSTILE})
    page = site.open()
    browser.poll_often(page)
    for path in (
        "", "servers/", f"servers/{made['id']}/", f"servers/disconnect/?pick={made['id']}", "jobs/", f"jobs/{job}/",
        f"jobs/fail/?pick={job}", "activity/",
    ):  # fmt: skip
        site.go(page, path)
        shown = page.text_content("main")
        assert "<script>alert(2)</script>" in shown, path
        assert "8641969" not in page.locator("h1").inner_text()
        assert page.locator("main img, main script").count() == 0, path
    site.go(page, f"servers/{made['id']}/")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        pass  # the content of a poll is text as well
    assert page.locator("main img, main script").count() == 0
    page.context.close()


def test_without_javascript_and_by_keyboard_alone_a_selection_is_cordoned(site):
    page = site.open(java_script_enabled=False)
    site.go(page, "servers/?type=EXECUTOR")

    def tab_to(selector):
        for _ in range(120):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                return
        pytest.fail(f"the keyboard does not reach {selector}")

    tab_to("input[name=pick]")
    page.keyboard.press("Space")
    page.keyboard.down("Shift")
    tab_to("button[formaction$='servers/cordon/']")
    page.keyboard.up("Shift")
    page.keyboard.press("Enter")
    page.locator("textarea[name=note]").wait_for()
    tab_to("textarea[name=note]")
    page.keyboard.type("by keyboard")
    tab_to("button.is-main")
    page.keyboard.press("Enter")
    page.locator(".messagelist", has_text="Cordoned: 1 server.").wait_for()
    expect(page.locator(".s-CORDONED").first).to_be_visible()
    page.context.close()


def test_when_polls_fail_the_page_is_marked_stale_and_loses_its_colours(site):
    port = free_port()
    other = site.running.web("web-2", port=port)
    page = site.browser.new_context().new_page()
    page.goto(f"{other}/admin/login/?next=/admin/instance/")
    page.fill("#id_username", "ann")
    page.fill("#id_password", "secret")
    page.click("[type=submit]")
    browser.poll_often(page)
    expect(page.locator("#stale")).to_be_hidden()
    site.running.kill("web-2")
    page.locator("#stale", has_text=re.compile(r"Not updating since \d\d:\d\d:\d\d\s+\(\d+ s ago\)")).wait_for()
    assert "grayscale(1)" in page.evaluate("getComputedStyle(document.getElementById('live')).filter")
    site.running.web("web-2", port=port)
    page.locator("#stale").wait_for(state="hidden")
    site.running.kill("web-2")
    page.context.close()


def test_polls_without_changes_are_empty_and_stop_after_the_job_has_ended(site):
    job = site.submit("true", tags=["nobody-polls"], unmatched="wait")
    page = site.open()
    browser.poll_often(page)
    site.go(page, "jobs/?tag=nobody-polls")
    polls = []
    page.on(
        "response", lambda response: polls.append(response.status) if "hx-request" in response.request.headers else 0
    )
    eventually(lambda: page.wait_for_timeout(200) or 204 in polls, why="a poll finds nothing new")
    age = page.locator("#live [data-age]").first

    def polls_until_next_age():
        """Return the statuses of the polls until an age counts on."""
        polls.clear()
        before = age.inner_text()
        eventually(lambda: page.wait_for_timeout(200) or age.inner_text() != before, why="ages count on")
        return set(polls)

    # One late heartbeat changes the count of silent servers in the sidebar, and so the answer to a poll.
    eventually(lambda: polls_until_next_age() == {204}, within=60, why="ages count on without new content")
    expect(page.locator("#stale")).to_be_hidden()
    site.go(page, f"jobs/{job}/")
    polls.clear()
    site.running.call("POST", f"{site.url}/api/v1/jobs/{job}/cancel", site.running.token("operator"), {})
    eventually(lambda: page.wait_for_timeout(200) or 286 in polls, why="the last poll says that it has ended")
    polls.clear()
    page.wait_for_timeout(3000)
    assert polls == []
    expect(page.locator("#stale")).to_be_hidden()
    page.context.close()


@pytest.mark.exhaustive
def test_a_row_of_a_list_is_one_line_on_every_screen_wider_than_a_phone(site):
    site.running.agent("rows", site.url, "--tags", "rows")
    job = site.submit("exit 1", tags=["rows"], unmatched="wait", name="import of the orders of the day " * 3)
    site.begin(browser.step("a", "exit 1", tags=["rows"]), browser.step("b", "true", "a", tags=["rows"]))
    site.schedule("rows")
    eventually(lambda: site.job(job)["state"] == "FAILED", why="it failed")
    page = site.open()
    site.go(page, "triggers/?q=rows")
    browser.poll_often(page)
    page.locator("tr", has_text="rows").locator(".slot .s-FIRED").first.wait_for()
    for width in (1024, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("servers/?q=rows", "jobs/?tag=rows", "triggers/?q=rows", f"jobs/{job}/"):
            site.go(page, path)
            assert page.evaluate(HIDDEN_AT_THE_SIDE) == [], (width, path)
            heights = page.evaluate(ROW_HEIGHTS)
            assert all(28 <= height <= 36 for height in heights), (width, path, heights)
    site.go(page, "servers/?q=rows")
    site.running.kill("rows")
    page.locator("tr", has_text="rows").locator(".due").wait_for()
    for width in (1024, 1280, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(HIDDEN_AT_THE_SIDE) == [], width
        assert page.evaluate(OUT_OF_THEIR_CELLS) == [], width
        assert all(28 <= height <= 36 for height in page.evaluate(ROW_HEIGHTS)), width
    page.context.close()


@pytest.mark.exhaustive
def test_no_page_has_a_serious_accessibility_violation(site):
    name = "read"
    site.running.agent(name, site.url, "--tags", name)
    job = site.submit("echo out; echo err >&2; exit 1", tags=[name], unmatched="wait")
    eventually(lambda: site.job(job)["state"] == "FAILED", why="it failed")
    waiting = site.submit("true", tags=["quantum"], unmatched="wait")
    inner = {"type": "execution", "name": "inner", "steps": [browser.step("x", "true", tags=[name])]}
    run = site.begin(
        browser.step("bad", "exit 1", tags=[name]),
        browser.step("after", "true", "bad", tags=[name]),
        {"key": "child", "action": inner},
        on_error=[{"key": "tell", "action": browser.script("cat"), "tags": [name]}],
    )
    eventually(lambda: site.execution(run)["state"] == "FAILED", why="the execution failed")
    going = site.begin(
        browser.step("long", 'echo "0.4 copying" > "$JOB_PROGRESS"; sleep 600', tags=[name]),
        browser.step("then", "true", "long", tags=[name]),
    )
    half = site.execution(going)["steps"][0]["job"]
    eventually(lambda: site.job(half)["attempts"] and site.job(half)["attempts"][0]["progress"], why="it says how far")
    site.schedule(name)
    page = site.open(color_scheme="light")
    site.go(page, "triggers/")
    browser.poll_often(page)
    page.locator("tr", has_text=name).locator(".slot .s-FIRED").first.wait_for()
    server, batch = site.server_page(page, name), site.begin_batch(page, name)
    in_the_dark = page.context.new_page()
    in_the_dark.emulate_media(color_scheme="dark")
    violations: list[str] = []
    paths = (
        "", "servers/", "servers/?attention=1&q=nobody", server, "jobs/", f"jobs/{job}/", f"jobs/{waiting}/",
        f"jobs/resubmit/?pick={job}", "jobs/cancel/?all=1", "servers/drain/?all=1", "activity/", "quarantine/",
        "recovery/?claimed=0&running=0", "jobs/00000000-0000-7000-8000-000000000000/", f"jobs/{half}/",
        "executions/", "executions/?state=CANCELLED&q=nobody", f"executions/{run}/", f"executions/{going}/",
        f"executions/cancel/?pick={going}", f"executions/rerun/?pick={run}", "triggers/",
        "jobs/?sort=longest&since=2020-01-01T00:00", batch, f"{batch}stop/", "batches/",
        "maintenance/", "maintenance/enter/", "brake/",
    )  # fmt: skip
    for path in paths:
        for reader, rules in ((page, ()), (in_the_dark, ("color-contrast",))):
            answer = reader.goto(f"{site.url}/admin/instance/{path}")
            assert answer.status in (200, 404), path
            violations += browser.findings(reader, *rules)
    assert violations == []
    page.set_viewport_size({"width": 360, "height": 800})
    for path in paths:
        site.go(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate(HIDDEN_AT_THE_SIDE) == [], path
    # An unknown job is a 404, which the browser logs in its console.
    site.complaints[:] = [complaint for complaint in site.complaints if "404" not in complaint]
    page.context.close()


def test_the_api_page_follows_the_colour_scheme_of_the_user(site):
    page = site.open(color_scheme="dark")
    page.goto(f"{site.url}/api/docs")
    page.locator(".opblock").first.wait_for()
    brightest = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).slice(0, 3))"
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        eventually(lambda is_dark=scheme == "dark": (page.evaluate(brightest) < 100) == is_dark, why=scheme)


def test_the_django_admin_pages_respect_the_content_security_policy(site):
    page = site.open()
    for path in (
        "", "liveness/server/", "liveness/serverevent/", "liveness/apitoken/", "jobs/workerjob/",
        "jobs/attempt/", "auth/user/", "auth/user/add/", "auth/user/1/change/", "auth/group/add/", "password_change/",
    ):  # fmt: skip
        answer = page.goto(f"{site.url}/admin/{path}")
        assert answer.status == 200, path
    page.context.close()
