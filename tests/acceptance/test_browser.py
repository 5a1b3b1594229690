"""The Instance page in a real browser: it shows a worker being lost without a reload, and asks nothing it may not."""

import os

import psycopg
import pytest
from playwright.sync_api import sync_playwright

from tests.support import services
from tests.support.processes import fleet

pytestmark = pytest.mark.acceptance

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
MAKE_ADMIN = "from django.contrib.auth.models import User; User.objects.create_superuser('ann', password='secret')"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_a_killed_worker_without_a_reload_and_breaks_no_policy(tmp_path, scheme):
    chromium = services.program("chromium")
    server, _, _ = os.environ["DATABASE_URL"].rpartition("/")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("drop database if exists acceptance_browser with (force)")
        connection.execute("create database acceptance_browser")
    with fleet(tmp_path, DATABASE_URL=f"{server}/acceptance_browser") as running, sync_playwright() as playwright:
        running.run("manage.py", "migrate", "--verbosity", "0")
        running.run("manage.py", "collectstatic", "--noinput", "--verbosity", "0")
        running.run("manage.py", "shell", "--command", MAKE_ADMIN)
        url = running.web()
        running.executor("executor", "--beat", "--scheduler", "celery.beat:Scheduler")
        running.agent("worker-1", url)

        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_context(color_scheme=scheme, viewport={"width": 360, "height": 800}).new_page()
        complaints: list[str] = []
        elsewhere: list[str] = []
        loads: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else elsewhere.append(asked.url))
        page.on("load", lambda _: loads.append(page.url))

        page.goto(f"{url}/admin/login/?next=/admin/instance/")
        page.fill("#id_username", "ann")
        page.fill("#id_password", "secret")
        page.click("[type=submit]")
        row = page.locator("tr", has_text="worker-1")
        row.get_by_text("RUNNING").wait_for(timeout=20_000)
        opened = len(loads)
        running.kill("worker-1")
        page.locator("text=DISCONNECTED").first.wait_for(timeout=20_000)
        page.locator(".activity >> text=NOT_RUNNING").first.wait_for(timeout=20_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "it is read on a phone as well"
        assert len(loads) == opened, "it was reloaded"
        assert (complaints, elsewhere) == ([], [])
        browser.close()
