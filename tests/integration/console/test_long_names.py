"""Long names do not make a page or a table too wide."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from playwright.sync_api import sync_playwright

from jobs.services.liveness_check import check_liveness
from tests.support.browser import FLAGS
from tests.support.services import program

LONG = "x" * 190
WIDTHS = (360, 1440)
MEASURE = """() => {
  const wide = document.scrollingElement.scrollWidth - window.innerWidth;
  const tables = [...document.querySelectorAll("table.rows")]
    .filter((table) => table.offsetWidth > table.parentElement.clientWidth + 1)
    .map((table) => `${table.className}: ${table.offsetWidth} of ${table.parentElement.clientWidth}`);
  return [wide > 0 ? `the page is ${wide} px too wide` : "", ...tables].filter(Boolean);
}"""


def with_styles(page):
    """Return the page as one file, with its stylesheets and without scripts."""

    def inline(match):
        found = finders.find(re.search(r'href="/static/([^"?]+)', match[0])[1])
        return f"<style>{Path(found).read_text()}</style>"

    page = re.sub(r"<script\b.*?</script>", "", page, flags=re.S)
    return re.sub(r'<link[^>]+rel="stylesheet"[^>]*>', inline, page)


@pytest.fixture
def pages(reader, api, worker, submit, begin, clock):
    submit(name=f"job-{LONG}", tags=[f"tag-{'y' * 80}"], unmatched="wait")
    submit(action={"type": "callable", "path": f"package.{'z' * 150}:function"}, tags=["c" * 60])
    submit(on_worker_lost="FAIL")
    one = worker(name=f"worker-{LONG}", hostname="h" * 200, max_concurrent=5)
    held = one.hold()
    error = {"code": f"Code{'E' * 90}", "message": "m" * 300}
    one.report({"attempt": held["id"], "event": "FAILED", "error": error})
    submit(name=f"runs-{LONG}")
    one.hold()
    begin({"key": "a", "action": {"type": "script", "command": "true"}})
    operator = api("operator")
    action = {"type": "script", "command": "true"}
    trigger = {"name": f"trigger-{LONG}", "interval_seconds": 60, "action": action}
    operator.post("/triggers", {**trigger, "execution": {"name": LONG, "steps": [{"key": "k" * 60, "action": action}]}})
    operator.post(f"/servers/{one.id}/cordon", {"note": "n" * 190})
    check_liveness()
    paths = ("", "servers/", f"servers/{one.id}/", "jobs/", f"jobs/{held['job']['id']}/", "executions/", "triggers/",
             "activity/", "errors/", "quarantine/", "queues/", "trends/")  # fmt: skip
    return {path: reader.get(f"/admin/instance/{path}", follow=True).content.decode() for path in paths}


def test_a_long_name_pushes_nothing_off_a_page(pages):
    wrong = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=FLAGS)
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            for path, content in pages.items():
                page.set_content(with_styles(content))
                if found := page.evaluate(MEASURE):
                    wrong[path, width] = found
        browser.close()
    assert wrong == {}
